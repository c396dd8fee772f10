"""Where in the world a run takes place: one node by itself, or one of several that were told their places."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final

from aioelastic._agent.rendezvous import Rendezvous
from aioelastic._agent.slurm import SlurmPlace, slurm_place
from aioelastic._agent.standalone import StandaloneRendezvous
from aioelastic._agent.static import STATIC_PORT, STATIC_RUN, StaticRendezvous
from aioelastic._agent.world_checks import checked_address, checked_number, checked_port
from aioelastic._cli.run_options import RunOptions
from aioelastic._errors.exceptions import SpecificationError
from aioelastic._logs.run_names import checked_run_id

_STATIC: Final = "static"


def choose_place(
    options: RunOptions, local_world_size: int, environ: Mapping[str, str]
) -> tuple[Rendezvous, tuple[str, ...]]:
    """Give the rendezvous, and a remark for each option that has no effect on it.

    Args:
        options: The options.
        local_world_size: Ranks on this node.
        environ: The variables, for those of Slurm.

    Raises:
        SpecificationError: The options ask for what is not there, or leave something open that nobody can know.
    """
    if options.rdzv_id is not None:
        checked_run_id(options.source("rdzv_id"), options.rdzv_id)
    least, most = options.nnodes
    if least == most > 1:
        return _one_of_several(options, local_world_size, environ)
    if least > 1:
        raise SpecificationError(
            f"{options.source('nnodes')} {least}:{most} asks for nodes that come and go, and no rendezvous here can do "
            f"that: give a fixed number, as in --nnodes {most} --node-rank K --master-addr HOST"
        )
    return _one_node(options, local_world_size, environ)


def _one_node(
    options: RunOptions, local_world_size: int, environ: Mapping[str, str]
) -> tuple[Rendezvous, tuple[str, ...]]:
    """Give the place of a node that is the world."""
    address, port = None if options.standalone else options.master_addr, options.master_port
    static = not options.standalone and options.rdzv_backend in {None, _STATIC}
    if static and options.rdzv_endpoint:
        address, port = _endpoint(options)
    fixed = static and port not in {None, 0}
    local_addr = not fixed and address is None
    notes = tuple(_without_effect_on_one_node(options, environ, static=static, fixed=fixed, local_addr=local_addr))
    if fixed:
        assert port is not None  # noqa: S101 - for the type checker
        nodes = f"{options.source('node_rank')} (of 1 node)"
        node_rank = checked_number(nodes, options.node_rank or 0, 0, 0)
        address = checked_address(options.source("master_addr"), address or "127.0.0.1")
        rendezvous: Rendezvous = StaticRendezvous(
            local_world_size,
            nnodes=1,
            node_rank=node_rank,
            master_addr=address,
            master_port=port,
            run_id=options.rdzv_id or STATIC_RUN,
        )
        return rendezvous, notes
    address = address or options.local_addr or "localhost"
    source = options.source("master_addr" if options.master_addr else "local_addr")
    address = checked_address(source, address)
    return StandaloneRendezvous(local_world_size, master_addr=address, run_id=options.rdzv_id), notes


def _one_of_several(
    options: RunOptions, local_world_size: int, environ: Mapping[str, str]
) -> tuple[Rendezvous, tuple[str, ...]]:
    """Give the place of a node among a fixed number of nodes."""
    _refuse_other_rendezvous(options)
    nodes = options.nnodes[0]
    address, port, port_source = options.master_addr, options.master_port, options.source("master_port")
    if options.rdzv_endpoint:
        (address, port), port_source = _endpoint(options), f"the port of {options.source('rdzv_endpoint')}"
    node_rank, run_id = options.node_rank, options.rdzv_id
    if address is None or node_rank is None:
        place = _slurm(options, environ, nodes)
        if address is None:
            address, port = place.master_addr, port or place.master_port
        node_rank = place.node_rank if node_rank is None else node_rank
        run_id = run_id or place.run_id
    rendezvous = StaticRendezvous(
        local_world_size,
        nnodes=nodes,
        node_rank=checked_number(f"{options.source('node_rank')} (of {nodes} nodes)", node_rank, 0, nodes - 1),
        master_addr=checked_address(options.source("master_addr"), address),
        master_port=checked_port(port_source, STATIC_PORT if port is None else port),
        run_id=run_id or STATIC_RUN,
    )
    return rendezvous, tuple(_without_effect(options, static=True, local_addr=False))


def _refuse_other_rendezvous(options: RunOptions) -> None:
    nodes = options.nnodes[0]
    remedy = f"give each node its place: --nnodes {nodes} --node-rank K --master-addr HOST, without"
    if options.standalone:
        source = options.source("standalone")
        raise SpecificationError(f"{source} means one node, and --nnodes is {nodes}: {remedy} --standalone")
    if options.rdzv_backend not in {None, _STATIC}:
        raise SpecificationError(
            f"{options.source('rdzv_backend')} {options.rdzv_backend}: several nodes cannot find each other here, they "
            f"have to be told: {remedy} --rdzv-backend"
        )


def _slurm(options: RunOptions, environ: Mapping[str, str], nodes: int) -> SlurmPlace:
    """Give what Slurm says for what the options do not."""
    place = slurm_place(environ)
    if place is None:
        # torchrun takes node 0 and 127.0.0.1 then, and every node waits for itself.
        needed: dict[str, object] = {
            "--node-rank K (this node's number)": options.node_rank,
            "--master-addr HOST (the host of node 0)": options.rdzv_endpoint or options.master_addr,
        }
        wanted = " and ".join(name for name, value in needed.items() if value is None)
        raise SpecificationError(f"--nnodes {nodes} needs {wanted}: outside of srun, nobody else can know")
    if place.nnodes != nodes:
        raise SpecificationError(
            f"--nnodes is {nodes} and Slurm's step has {place.nnodes}: give --nnodes {place.nnodes}, "
            "or --node-rank and --master-addr"
        )
    return place


def _endpoint(options: RunOptions) -> tuple[str, int]:
    """Take the host and the port of ``--rdzv-endpoint`` apart."""
    text, source = (options.rdzv_endpoint or "").strip(), options.source("rdzv_endpoint")
    host, colon, port = text.rpartition(":")
    # The last colon of an address in brackets is its own.
    if not colon or not host or not (port.isascii() and port.isdecimal()):
        raise SpecificationError(f"{source} is {text!r}: give host and port, as in node0:{STATIC_PORT}")
    return checked_address(source, host), 0 if int(port) == 0 else checked_port(f"the port of {source}", int(port))


def _without_effect_on_one_node(
    options: RunOptions, environ: Mapping[str, str], *, static: bool, fixed: bool, local_addr: bool
) -> Iterator[str]:
    least, most = options.nnodes
    if most > least:
        yield f"{options.source('nnodes')} {least}:{most}: no node can join later, this one runs by itself"
    yield from _without_effect(options, static=static, local_addr=local_addr)
    if options.master_addr and options.standalone:
        yield f"{options.source('master_addr')} has no effect: with --standalone the ranks meet at localhost"
    if options.master_port and not static:
        named = "--standalone" if options.standalone else f"--rdzv-backend {options.rdzv_backend}"
        yield f"{options.source('master_port')} has no effect: with {named} the ranks meet at a free port"
    if options.node_rank and not fixed:
        yield f"{options.source('node_rank')} has no effect: there is one node (--nnodes says how many)"
    if "nnodes" not in options.given or most > least:
        with suppress(SpecificationError):
            place = slurm_place(environ)
            if place is not None and place.nnodes > 1:
                yield (
                    f"Slurm's step has {place.nnodes} nodes, and each runs by itself: "
                    f"--nnodes {place.nnodes} makes them one run"
                )


def _without_effect(options: RunOptions, *, static: bool, local_addr: bool) -> Iterator[str]:
    """Say which options of the rendezvous have no effect, and why."""
    reasons = {}
    if options.rdzv_backend not in {None, _STATIC}:
        reasons["rdzv_backend"] = "the ranks of one node need nobody to find each other"
    if options.rdzv_endpoint and not static:
        reasons["rdzv_endpoint"] = "the ranks of one node meet at a free port (--master-port sets one)"
    if options.rdzv_endpoint and static:
        named = options.source("rdzv_endpoint")
        reasons |= {field: f"{named} says it" for field in ("master_addr", "master_port") if field in options.given}
    if options.rdzv_conf:
        reasons["rdzv_conf"] = "there is no store to configure"
    if options.local_addr and not local_addr:
        reasons["local_addr"] = "the address of rank 0 is given"
    for field, reason in reasons.items():
        yield f"{options.source(field)} has no effect: {reason}"
