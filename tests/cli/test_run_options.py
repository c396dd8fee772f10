"""From words and variables to the options of ``aioelastic run``; torchrun's ways, where it has some."""

import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioelastic._cli.option_table import OPTIONS, Option, comma_list
from aioelastic._cli.run_options import RunOptions, parse
from aioelastic._logs.std import Std
from tests.helpers.drivers import ROOT

HOW_TO: Final = ROOT / "docs" / "how-to" / "switch-from-torchrun.md"

SAMPLES: Final = {
    "nnodes": ("2:3", (2, 3)),
    "nproc_per_node": ("gpu", "gpu"),
    "max_restarts": ("3", 3),
    "monitor_interval": ("0.5", 0.5),
    "start_method": ("fork", "fork"),
    "redirects": ("0:3,12:1", {0: Std.ALL, 12: Std.OUT}),
    "tee": ("2", Std.ERR),
    "local_ranks_filter": ("0, 2", frozenset({0, 2})),
    "duplicate_stdout_filters": ("loss,a,,b", ("loss", "a,b")),
    "duplicate_stderr_filters": ("", ()),
    "node_rank": ("1", 1),
    "master_port": ("29501", 29501),
    "numa_binding": ("core-complex", "core-complex"),
    "signals_to_handle": ("SIGTERM, SIGUSR1", (signal.SIGTERM, signal.SIGUSR1)),
    "shutdown_timeout": ("1.5", 1.5),
}
"""A text and its value, for each option whose value is no plain text."""


def sample(option: Option) -> tuple[str, object]:
    """Give a text for an option, and the value it means."""
    return SAMPLES.get(option.field, ("1", True) if option.read is None else ("some-text", "some-text"))


def refusal(words: list[str], capsys: pytest.CaptureFixture[str], variables: Mapping[str, str] | None = None) -> str:
    """Parse what cannot be, and give the line that says so."""
    with pytest.raises(SystemExit) as caught:
        parse(words, variables or {})
    usage, error = capsys.readouterr().err.splitlines()
    assert (caught.value.code, usage) == (2, "usage: aioelastic run [options] script [arguments of the script]")
    return error.removeprefix("aioelastic run: error: ")


def split(*words: str) -> tuple[str, list[str]]:
    """Give the script and its arguments."""
    options = parse(words, {})
    return options.script, list(options.script_args)


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_every_option_in_both_spellings_and_by_its_variable(option: Option) -> None:
    """``--a-b``, ``--a_b`` and ``PET_A_B`` mean the same, and who said it is known."""
    text, value = sample(option)
    name, underscored = f"--{option.name}", f"--{option.field}"
    forms = [[name], [underscored]] if option.read is None else [[name, text], [f"{underscored}={text}"]]

    parsed = [parse([*form, "s.py"], {}) for form in forms]
    by_variable = parse(["s.py"], {f"PET_{option.field.upper()}": text})

    assert [getattr(each, option.field) for each in (*parsed, by_variable)] == [value] * 3
    assert [each.given for each in parsed] == [{option.field: name}] * 2
    assert by_variable.source(option.field) == f"PET_{option.field.upper()}"


def test_without_anything_the_defaults_are_torchruns() -> None:
    """One rank on one node, no restart, output as it is."""
    options = parse(["s.py"], {})

    assert (options.nnodes, options.nproc_per_node, options.max_restarts) == ((1, 1), 1, 0)
    assert (options.role, options.redirects, options.tee, options.given) == ("default", Std.NONE, Std.NONE, {})
    assert [each.name for each in options.signals_to_handle] == ["SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT"]


@pytest.mark.parametrize(
    ("words", "field", "value"),
    [
        (["--nproc", "2"], "nproc_per_node", 2),  # torchrun's own spellings of one option get in its way here
        (["--nproc_p=2"], "nproc_per_node", 2),
        (["--rdzv_e", "h:1"], "rdzv_endpoint", "h:1"),
        (["--no_p"], "no_python", True),
        (["-r3"], "redirects", Std.ALL),
        (["-r", "3", "-t=1"], "tee", Std.OUT),
        (["-mr", "3"], "redirects", Std.ALL),
        (["-mr", "3"], "module", True),
        (["--log-dir=-x"], "log_dir", "-x"),
        (["--role", "a b"], "role", "a b"),
        (["--tee", "1", "--tee", "2"], "tee", Std.ERR),
    ],
)
def test_ways_of_writing_an_option(words: list[str], field: str, value: object) -> None:
    """Prefixes, values in the same word, and letters together; the last one counts."""
    options = parse([*words, "s.py", "x"], {})

    assert getattr(options, field) == value
    assert (options.script, options.script_args) == ("s.py", ("x",))


WORDS: Final = st.one_of(
    st.sampled_from(["--", "-m", "--nnodes", "--nnodes=2", "--no", "-h", "--help", "-", "", "@x", "--tee", "-5"]),
    st.text(st.sampled_from("-=_ aé5\n"), max_size=8),
)


@given(
    before=st.sampled_from([[], ["--"], ["-m"], ["--nproc_per", "2"], ["--standalone", "-t=3", "--"]]),
    script=st.sampled_from(["s.py", "a b", "pkg.mod", "@f"]),
    arguments=st.lists(WORDS, max_size=6),
)
def test_what_comes_behind_the_script_is_the_scripts(before: list[str], script: str, arguments: list[str]) -> None:
    """The script gets exactly its own words, whatever they look like."""
    assert split(*before, script, *arguments) == (script, arguments)


def test_a_script_that_looks_like_an_option_comes_behind_two_dashes() -> None:
    """The first ``--`` before the script ends our options, and only that one is ours."""
    assert split("--", "--nnodes", "-t") == ("--nnodes", ["-t"])
    assert split("--role", "x", "--", "--", "y") == ("--", ["y"])
    assert split("-") == ("-", [])


@pytest.mark.parametrize(
    ("words", "variables", "said"),
    [
        (["--max-restarts", "x"], {}, "--max-restarts: 'x' is no whole number: give 0 or more"),
        (["--max_restarts=-1"], {}, "--max-restarts: -1 is out of bounds: give 0 or more"),
        ([], {"PET_ROLE": "a\nb"}, r"PET_ROLE: 'a\nb' has a line end: it is shown before every line"),
        ([], {"PET_MASTER_PORT": "70000"}, "PET_MASTER_PORT: 70000 is out of bounds: give 0..65535"),
        ([], {"PET_STANDALONE": "yes"}, "PET_STANDALONE: 'yes' is neither on nor off: give 1 or 0"),
        (["--nnodes", "2:1"], {}, "--nnodes: '2:1' is no number of nodes: give one from 1 on, or a range such as 1:4"),
        (["--nnodes=0"], {}, "--nnodes: '0' is no number of nodes: give one from 1 on, or a range such as 1:4"),
        (
            ["--nproc-per-node=0"],
            {},
            "--nproc-per-node: '0' is no number of ranks: give one from 1 on, or auto, cpu, gpu, xpu",
        ),
        (["-r", "5"], {}, "--redirects: cannot read streams from '5'; give one digit of 0..3"),
        (["--local-ranks-filter", "0,x"], {}, "--local-ranks-filter: '0,x' is no list of local ranks"),
        (["--start-method=thread"], {}, "--start-method: 'thread' is not known: give spawn, fork or forkserver"),
        ([], {"PET_NUMA_BINDING": "no"}, "PET_NUMA_BINDING: 'no' is not known: give node, socket, exclusive or"),
        (["--shutdown-timeout=nan"], {}, "--shutdown-timeout: 'nan' is no number of seconds: give 0 or more"),
        ([], {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "soon"}, "TORCH_ELASTIC_SHUTDOWN_TIMEOUT: 'soon' is no number"),
        ([], {"TORCHELASTIC_SIGNALS_TO_HANDLE": "TERM"}, "TORCHELASTIC_SIGNALS_TO_HANDLE: there is no signal 'TERM'"),
        (["--signals-to-handle=SIGKILL"], {}, "--signals-to-handle: SIGKILL cannot be a word to end the ranks by"),
    ],
)
def test_a_bad_value_is_refused_by_the_name_of_what_gave_it(
    words: list[str], variables: dict[str, str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line says where the value came from, what is wrong with it, and what would do."""
    assert refusal([*words, "s.py"], capsys, variables).startswith(said)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "the script to run is missing: aioelastic run [options] script"),
        (["-m", "--standalone"], "the module to run is missing"),
        (["--nproc-per-gpu", "2", "s.py"], "there is no option --nproc-per-gpu: did you mean --nproc-per-node?"),
        (["--learning-rate=1", "s.py"], "there is no option --learning-rate: options of the script come behind it"),
        (["-x", "s.py"], "there is no option -x: options of the script come behind it"),
        (["--ma", "x", "s.py"], "ambiguous option: --ma could match --max-restarts, --master-addr, --master-port"),
        (["--log-dir", "-x", "s.py"], "argument --log-dir: expected one argument"),
        (["--nnodes", "--", "s.py"], "argument --nnodes: expected one argument"),
        (["--tee"], "argument -t/--tee: expected one argument"),
        (["--standalone=1", "s.py"], "argument --standalone: ignored explicit argument '1'"),
    ],
)
def test_words_that_make_no_sense(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """An option that is unknown, not clear, or lacks its value is refused in one line."""
    assert refusal(words, capsys).startswith(said)


def test_the_command_line_wins_over_variables() -> None:
    """A variable's value is not even looked at when the option is given; a flag's may also turn it off."""
    variables = {"PET_NPROC_PER_NODE": "nonsense", "PET_MODULE": "0", "PET_STANDALONE": "-1"}

    options = parse(["--nproc-per-node=3", "--no-color", "s.py"], variables)

    assert (options.nproc_per_node, options.module, options.standalone, options.no_color) == (3, False, True, True)


def test_variables_of_torchs_own_come_after_those_of_options() -> None:
    """``PET_`` variables win over the other two that torchrun knows."""
    others = {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "7", "TORCHELASTIC_SIGNALS_TO_HANDLE": "SIGUSR2"}

    def told(options: RunOptions) -> tuple[float | None, tuple[str, ...]]:
        return options.shutdown_timeout, tuple(each.name for each in options.signals_to_handle)

    assert told(parse(["s.py"], others)) == (7, ("SIGUSR2",))
    assert told(parse(["s.py"], {**others, "PET_SHUTDOWN_TIMEOUT": "2"})) == (2, ("SIGUSR2",))
    assert told(parse(["--signals-to-handle", "SIGINT", "s.py"], others)) == (7, ("SIGINT",))


@given(
    st.lists(st.text(st.sampled_from(",ab \n"), min_size=1).filter(lambda entry: not entry.startswith(",")), max_size=5)
)
def test_a_comma_in_an_entry_is_two(entries: list[str]) -> None:
    """Entries with doubled commas come back as they were; one that begins with a comma cannot be written."""
    assert comma_list(",".join(entry.replace(",", ",,") for entry in entries)) == tuple(entries)


@pytest.mark.parametrize("asked", ["--help", "--he", "-h", "-mh"])
def test_the_help_shows_every_option(asked: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Asking for help ends with 0, behind other options, too."""
    with pytest.raises(SystemExit) as caught:
        parse(["--nproc-per-node", "2", asked, "s.py"], {})

    shown = capsys.readouterr().out
    assert caught.value.code == 0
    assert {f"--{option.name}" for option in OPTIONS} <= set(re.findall(r"--[a-z-]+", shown))


def test_reading_options_imports_little() -> None:
    """Neither an event loop nor what only some options need is imported."""
    program = (
        "import sys\nfrom aioelastic._cli.run_options import parse\n"
        "parse(['--nproc-per-node', '2', '--logs-specs', 'x', '--numa-binding', 'node', 's.py'], {})\n"
        "print(*sys.modules)"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)

    assert not set(done.stdout.split()) & {"torch", "asyncio", "anyio", "psutil", "importlib.metadata", "difflib"}


def test_the_how_to_has_a_row_for_every_option() -> None:
    """Its table names all options in their order, and says of each whether it works."""
    rows = re.findall(r"^\| `--([a-z-]+)`(?:, `-([a-z])`)? \| ([a-z ]+) \| .+ \|$", HOW_TO.read_text(), re.MULTILINE)

    assert [(name, short) for name, short, _ in rows] == [(option.name, option.short) for option in OPTIONS]
    assert {verdict for _, _, verdict in rows} == {"works", "differs", "no effect", "ours"}
