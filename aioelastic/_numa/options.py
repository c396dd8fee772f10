"""What is asked for: the mode of binding, and what to do when it fails."""

from dataclasses import dataclass
from enum import StrEnum

from aioelastic._errors.exceptions import SpecificationError, SpecificationTypeError


class AffinityMode(StrEnum):
    """Which CPUs a rank may use, seen from its accelerator: the one whose index is the local rank.

    Names, values and meaning are those of torch's ``torch.numa.binding.AffinityMode``. Of all modes, only CPUs that
    the supervisor may use itself are given. Without an accelerator the ranks are spread over the nodes first.

    Example:
        >>> from aioelastic._numa.options import AffinityMode
        >>> AffinityMode("core-complex") is AffinityMode.CORE_COMPLEX
        True
    """

    NODE = "node"
    """All CPUs of the accelerator's NUMA node; the one to take when in doubt."""

    SOCKET = "socket"
    """All CPUs of all nodes of the accelerator's socket."""

    EXCLUSIVE = "exclusive"
    """An even share of the node's physical cores among all accelerators of that node, and nobody else's."""

    CORE_COMPLEX = "core-complex"
    """One core complex of the node (the CPUs that share the highest-level cache). Shared when there are too few."""


@dataclass(frozen=True, slots=True)
class NumaOptions:
    """How ranks are bound to CPUs.

    Attributes:
        affinity_mode: Which CPUs a rank gets; the text of a mode is made the mode.
        should_fall_back_if_binding_fails: Warn and run the rank unbound, in place of a `NumaBindingError`.

    Raises:
        SpecificationError: The text is no mode.
        SpecificationTypeError: A value is of another type.

    Example:
        >>> from aioelastic._numa.options import AffinityMode, NumaOptions
        >>> NumaOptions("node").affinity_mode is AffinityMode.NODE
        True
    """

    affinity_mode: AffinityMode
    should_fall_back_if_binding_fails: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.should_fall_back_if_binding_fails, bool):
            kind = type(self.should_fall_back_if_binding_fails).__name__
            raise SpecificationTypeError(f"should_fall_back_if_binding_fails must be a bool, not {kind}")
        object.__setattr__(self, "affinity_mode", _mode(self.affinity_mode))


def _mode(value: object) -> AffinityMode:
    if not isinstance(value, str):
        raise SpecificationTypeError(f"affinity_mode must be an AffinityMode, not {type(value).__name__}")
    try:
        # A member of torch's own enum is a text with the same value.
        return AffinityMode(value)
    except ValueError:
        modes = ", ".join(repr(str(mode)) for mode in AffinityMode)
        raise SpecificationError(f"affinity_mode is {str(value)!r}: give one of {modes}") from None


def check_numa_options(options: object) -> NumaOptions | None:
    """Check what was passed as ``numa_options``.

    Args:
        options: A `NumaOptions`, an object with the same attributes (torch's own), or ``None``.

    Returns:
        The options, or ``None`` for no binding.

    Raises:
        SpecificationError: The mode is none.
        SpecificationTypeError: It is something else, or a value in it is.

    Example:
        >>> from aioelastic._numa.options import check_numa_options
        >>> check_numa_options(None) is None
        True
    """
    if options is None or isinstance(options, NumaOptions):
        return options
    try:
        return NumaOptions(
            options.affinity_mode,  # type: ignore[attr-defined]
            options.should_fall_back_if_binding_fails,  # type: ignore[attr-defined]
        )
    except AttributeError:
        kind = type(options).__name__
        raise SpecificationTypeError(f"numa_options must be a NumaOptions or None, not {kind}") from None
