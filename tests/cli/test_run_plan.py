"""From the options of ``aioelastic run`` to what is run, without running it."""

import signal
import sys
from collections.abc import Mapping
from typing import Final

import pytest

from aioelastic._agent.rendezvous import WorldInfo
from aioelastic._cli.run_options import parse
from aioelastic._cli.run_plan import RunPlan, make_plan
from aioelastic._errors.exceptions import SpecificationError
from aioelastic._logs.destinations import LogDirectoryError
from aioelastic._logs.specs import DefaultLogsSpecs
from aioelastic._logs.std import Std
from aioelastic._numa.options import AffinityMode, NumaOptions

QUIET: Final = {"OMP_NUM_THREADS": "2"}
"""Variables that nothing has to be remarked about."""

SLURM: Final = {
    **QUIET,
    "SLURM_JOB_ID": "4711",
    "SLURM_STEP_ID": "0",
    "SLURM_NODEID": "1",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NODELIST": "gpu[01-02]",
}
"""Variables of the second of two nodes of a job step."""


def plan(*words: str, environ: Mapping[str, str] = QUIET, on_terminal: bool = False) -> RunPlan:
    """Plan a run of a script that is there."""
    return make_plan(parse([*words, __file__, "--x"], environ), environ, on_terminal=on_terminal)


def refusal(*words: str, environ: Mapping[str, str] = QUIET) -> str:
    """Plan what cannot be, and give the error's text."""
    with pytest.raises(SpecificationError) as caught:
        plan(*words, environ=environ)
    assert "\n" not in str(caught.value)
    return str(caught.value)


async def world(*words: str, environ: Mapping[str, str] = QUIET) -> WorldInfo:
    """Give the place in the world that a run is planned for."""
    rendezvous = plan(*words, environ=environ).spec.rendezvous
    assert rendezvous is not None
    return await rendezvous.next_round()


def test_a_plain_script() -> None:
    """It is run unbuffered by the launcher's own interpreter, with its arguments as they are."""
    planned = plan("--nproc-per-node=2", "--role=trainer", "--max-restarts=3")

    spec = planned.spec
    assert (spec.entrypoint, spec.args) == (sys.executable, ("-u", __file__, "--x"))
    assert (spec.role, spec.local_world_size, spec.max_restarts, spec.shutdown_timeout) == ("trainer", 2, 3, 30)
    assert spec.envs == {"PYTHONUNBUFFERED": "1", "TORCHELASTIC_SIGNALS_TO_HANDLE": "SIGTERM,SIGINT,SIGHUP,SIGQUIT"}
    assert planned.signals == (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
    assert (planned.notes, planned.colour) == ((), True)
    assert plan("--no-color").colour is False


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["-m", "pkg.mod", "-m"], [sys.executable, "-u", "-m", "pkg.mod", "-m"]),
        (["--no-python", "date", "-u"], ["date", "-u"]),
        (["--run-path", __file__], [sys.executable, "-u", __file__]),
        (["--run-path", "--no-python", "-m", __file__], [sys.executable, "-u", __file__]),
        (["part${local_rank}.py"], [sys.executable, "-u", "part${local_rank}.py"]),
    ],
)
def test_other_commands(words: list[str], command: list[str]) -> None:
    """Modules, other programs, and scripts that the ranks have one each of."""
    spec = make_plan(parse(words, {}), QUIET).spec

    assert [spec.entrypoint, *spec.args] == command


def test_what_variables_say() -> None:
    """The interpreter, the prefix and buffering; empty ones say nothing."""
    told = {"PYTHON_EXEC": "/opt/python", "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "${rank}|"}
    silent = dict.fromkeys(told, "")

    planned = plan("--signals-to-handle=SIGUSR1", environ={**QUIET, **told, "PYTHONUNBUFFERED": ""})
    without = plan(environ={**QUIET, **silent})

    assert (planned.spec.entrypoint, planned.spec.log_line_prefix_template) == ("/opt/python", "${rank}|")
    assert planned.spec.envs == {"TORCHELASTIC_SIGNALS_TO_HANDLE": "SIGUSR1"}
    assert (without.spec.entrypoint, without.spec.log_line_prefix_template) == (sys.executable, None)


def test_what_is_passed_on() -> None:
    """Binding, filters, grace and virtual ranks are the spec's."""
    spec = plan(
        "--numa-binding=exclusive",
        "--duplicate-stdout-filters=a,,b,c",
        "--duplicate-stderr-filters=d",
        "--shutdown-timeout=0",
        "--virtual-local-rank",
    ).spec

    assert spec.numa_options == NumaOptions(AffinityMode.EXCLUSIVE)
    assert (spec.duplicate_stdout_filters, spec.duplicate_stderr_filters) == (("a,b", "c"), ("d",))
    assert (spec.shutdown_timeout, spec.virtual_local_rank) == (0, True)


@pytest.mark.parametrize(
    ("words", "on_terminal", "redirects", "tee"),
    [
        ([], False, Std.NONE, Std.NONE),
        ([], True, Std.NONE, Std.ALL),
        (["-t=0"], True, Std.NONE, Std.NONE),
        (["-r=0:2"], True, {0: Std.ERR}, Std.NONE),
        (["-r=3", "-t=1"], False, Std.ALL, Std.OUT),
    ],
)
def test_where_output_goes(words: list[str], on_terminal: bool, redirects: object, tee: object) -> None:
    """As it is said; unsaid, it is teed on a terminal."""
    specs = plan(*words, on_terminal=on_terminal).spec.logs_specs

    assert isinstance(specs, DefaultLogsSpecs)
    assert (specs.redirects, specs.tee) == (redirects, tee)


def test_a_variable_says_where_output_goes_on_a_terminal_too() -> None:
    """``PET_TEE=0`` is as good as ``-t 0``."""
    specs = plan(environ={**QUIET, "PET_TEE": "0"}, on_terminal=True).spec.logs_specs

    assert specs is not None
    assert specs.tee == Std.NONE


def test_ranks_that_this_node_does_not_have() -> None:
    """They are left out with a remark, as another node may have them."""
    planned = plan("--nproc-per-node=2", "-r=0:3,2:3", "-t=3:1,1:2", "--local-ranks-filter=1,7,8")

    specs = planned.spec.logs_specs
    assert specs is not None
    assert (specs.redirects, specs.tee, specs.local_ranks_filter) == ({0: Std.ALL}, {1: Std.ERR}, frozenset({1}))
    assert planned.notes == (
        "--redirects names local rank 2, which this node does not have",
        "--tee names local rank 3, which this node does not have",
        "--local-ranks-filter names local ranks 7, 8, which this node does not have",
    )


async def test_one_node_has_a_free_port_and_a_fresh_name() -> None:
    """So it is without options, with ``--standalone``, and with ``localhost:0``, which asks for the same."""
    for words in ([], ["--standalone"], ["--rdzv-endpoint=localhost:0"], ["--nnodes=1:4"], ["--master-port=0"]):
        place = await world("--nproc-per-node=2", *words)

        assert (place.group_rank, place.group_world_size, place.world_size) == (0, 1, 2)
        assert (place.master_addr, place.run_id[:4]) == ("localhost", "run-")
        assert place.master_port not in {0, 29500}


@pytest.mark.parametrize(
    ("words", "address", "port", "run"),
    [
        (["--rdzv-id=job"], "localhost", None, "job"),
        (["--standalone", "--rdzv-id=job", "--local-addr=127.0.0.9"], "127.0.0.9", None, "job"),
        (["--master-addr=127.0.0.2", "--local-addr=127.0.0.9"], "127.0.0.2", None, None),
        (["--master-port=29777"], "127.0.0.1", 29777, "none"),
        (["--master-port=29777", "--master-addr=[::1]", "--rdzv-id=job"], "::1", 29777, "job"),
        (["--rdzv-backend=static", "--rdzv-endpoint=node0:29777"], "node0", 29777, "none"),
        (["--rdzv-backend=c10d", "--rdzv-endpoint=node0:29777"], "localhost", None, None),
    ],
)
async def test_one_node_as_it_is_told(words: list[str], address: str, port: int | None, run: str | None) -> None:
    """Name, address and port are what the options say, with torchrun's defaults for a fixed port."""
    place = await world(*words)

    assert place.master_addr == address
    assert port is None or place.master_port == port
    assert run is None or place.run_id == run


@pytest.mark.parametrize(
    ("words", "environ", "expected"),
    [
        (["--node-rank=1", "--master-addr=node0"], QUIET, (1, "node0", 29500, "none")),
        (["--node-rank=0", "--master-addr=[fd00::1]", "--master-port=1", "--rdzv-id=j"], QUIET, (0, "fd00::1", 1, "j")),
        (["--node-rank=1", "--rdzv-backend=static", "--rdzv-endpoint=n0:77"], QUIET, (1, "n0", 77, "none")),
        ([], SLURM, (1, "gpu01", 22982, "slurm-4711.0")),
        (["--master-port=77", "--rdzv-id=j"], SLURM, (1, "gpu01", 77, "j")),
        (["--master-addr=other"], SLURM, (1, "other", 29500, "slurm-4711.0")),
        (["--node-rank=0", "--master-addr=other"], SLURM, (0, "other", 29500, "none")),
    ],
)
async def test_one_of_several_nodes(
    words: list[str], environ: Mapping[str, str], expected: tuple[int, str, int, str]
) -> None:
    """The place is what the options say, and for what they do not, Slurm."""
    place = await world("--nnodes=2", "--nproc-per-node=4", *words, environ=environ)

    assert (place.group_rank, place.master_addr, place.master_port, place.run_id) == expected
    assert (place.base_rank, place.world_size, place.group_world_size) == (4 * expected[0], 8, 2)


@pytest.mark.parametrize(
    ("words", "environ", "said"),
    [
        (["--nnodes=2"], QUIET, "--nnodes 2 needs --node-rank K (this node's number) and --master-addr HOST"),
        (["--nnodes=2", "--node-rank=0"], QUIET, "--nnodes 2 needs --master-addr HOST (the host of node 0): outside"),
        (["--nnodes=2", "--master-addr=n"], QUIET, "--nnodes 2 needs --node-rank K (this node's number): outside"),
        (["--nnodes=3"], SLURM, "--nnodes is 3 and Slurm's step has 2: give --nnodes 2, or --node-rank and"),
        (["--nnodes=2", "--node-rank=2", "--master-addr=n"], QUIET, "--node-rank (of 2 nodes) is 2: give 0..1"),
        (["--nnodes=2", "--node-rank=1", "--master-addr=n:1"], QUIET, "--master-addr is 'n:1', which is no IPv6"),
        (["--nnodes=2", "--node-rank=1", "--master-addr=n", "--master-port=0"], QUIET, "--master-port is 0: give 1.."),
        (["--nnodes=2:3"], QUIET, "--nnodes 2:3 asks for nodes that come and go, and no rendezvous here"),
        (["--nnodes=2", "--standalone"], QUIET, "--standalone means one node, and --nnodes is 2: give each node"),
        (["--nnodes=2", "--rdzv-backend=c10d"], QUIET, "--rdzv-backend c10d: several nodes cannot find each other"),
        (["--rdzv-endpoint=node0"], QUIET, "--rdzv-endpoint is 'node0': give host and port, as in node0:29500"),
        (["--rdzv-endpoint=[::1]"], QUIET, "--rdzv-endpoint is '[::1]': give host and port"),
        (["--rdzv-endpoint=n:99999"], QUIET, "the port of --rdzv-endpoint is 99999: give 1..65535"),
        (["--master-port=1", "--node-rank=1"], QUIET, "--node-rank (of 1 node) is 1: give 0"),
        ([], {**QUIET, "PET_RDZV_ID": "a/b"}, "PET_RDZV_ID names a directory, and 'a/b' cannot"),
        (["--no-python", "-m"], QUIET, "--module is for Python's modules and --no-python for other programs"),
        (["--logs-specs=nobody"], QUIET, "--logs-specs nobody: no package registers it in torchrun.logs_specs: give"),
        (["--nnodes=2", "--node-rank=1", "--rdzv-endpoint=n:0"], QUIET, "the port of --rdzv-endpoint is 0: give 1.."),
        ([], {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "a\n"}, "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE has a line end"),
    ],
)
def test_what_cannot_be(words: list[str], environ: Mapping[str, str], said: str) -> None:
    """One line says which option it is about, why not, and what would do."""
    assert refusal(*words, environ=environ).startswith(said)


def test_a_script_that_is_not_there() -> None:
    """It is missed before any rank is started."""
    with pytest.raises(SpecificationError, match=r"^there is no script 'no/such\.py' \(from .*\): give its path, -m"):
        make_plan(parse(["no/such.py"], {}), QUIET)


def test_a_log_directory_that_is_a_file() -> None:
    """It is refused as everywhere else."""
    with pytest.raises(LogDirectoryError):
        plan(f"--log-dir={__file__}")


@pytest.mark.parametrize(
    ("words", "environ", "notes"),
    [
        (["--rdzv-backend=static"], QUIET, []),
        (
            ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", "--rdzv-conf=timeout=9", "--nnodes=1:2"],
            QUIET,
            [
                "--nnodes 1:2: no node can join later, this one runs by itself",
                "--rdzv-backend has no effect: the ranks of one node need nobody to find each other",
                "--rdzv-endpoint has no effect: the ranks of one node meet at a free port (--master-port sets one)",
                "--rdzv-conf has no effect: there is no store to configure",
            ],
        ),
        (
            ["--standalone", "--master-addr=n", "--master-port=1", "--node-rank=1"],
            QUIET,
            [
                "--master-addr has no effect: with --standalone the ranks meet at localhost",
                "--master-port has no effect: with --standalone the ranks meet at a free port",
                "--node-rank has no effect: there is one node (--nnodes says how many)",
            ],
        ),
        (
            ["--rdzv-endpoint=n:1", "--master-addr=n", "--local-addr=m"],
            QUIET,
            [
                "--master-addr has no effect: --rdzv-endpoint says it",
                "--local-addr has no effect: the address of rank 0 is given",
            ],
        ),
        (
            ["--start-method=spawn", "--event-log-handler=null"],
            {**QUIET, "PET_MONITOR_INTERVAL": "5", "TORCHELASTIC_HEALTH_CHECK_PORT": "80"},
            [
                "PET_MONITOR_INTERVAL has no effect: ends of ranks are seen as they happen, nothing is polled",
                "--start-method has no effect: it is for functions, and the ranks are commands",
                "--event-log-handler has no effect: events are written to events.jsonl in the log directory",
                "TORCHELASTIC_HEALTH_CHECK_PORT has no effect: there is no health check to ask; watch the process",
            ],
        ),
        (
            ["--run-path", "--no-python"],
            QUIET,
            ["--no-python has no effect: --run-path says what the script is"],
        ),
        (["--nproc-per-node=1"], {}, []),
        (
            ["--nproc-per-node=2"],
            {},
            ["OMP_NUM_THREADS is not set, and each rank gets 1: set it to what suits the script"],
        ),
        ([], SLURM, ["Slurm's step has 2 nodes, and each runs by itself: --nnodes 2 makes them one run"]),
        (["--nnodes=1"], SLURM, []),
        (["--nnodes=1"], {**SLURM, "SLURM_NODEID": "x"}, []),
        ([], {**SLURM, "SLURM_NODEID": "x"}, []),
    ],
)
def test_remarks(words: list[str], environ: Mapping[str, str], notes: list[str]) -> None:
    """What has no effect, and what a person should know, is said in one line each, and nothing else is."""
    assert list(plan(*words, environ=environ).notes) == notes
