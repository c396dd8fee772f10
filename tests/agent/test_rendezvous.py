"""Where an agent stands: alone, or at a given place among several nodes; and where its ranks meet."""

import asyncio
import contextlib
import random
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from aioelastic._agent.free_ports import choose_port
from aioelastic._agent.rendezvous import WorldInfo
from aioelastic._agent.standalone import StandaloneRendezvous
from aioelastic._agent.static import StaticRendezvous
from aioelastic._errors.exceptions import SpecificationError, SpecificationTypeError
from aioelastic._logs.specs import DefaultLogsSpecs

UNUSED: Final = random.Random().randrange(20000, 30000)
"""Around here tests have ports of their own; by chance, as other programs of the kind run beside them."""

needs_ipv6 = pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="there is no IPv6 here")


@contextlib.contextmanager
def held(family: socket.AddressFamily, host: str) -> Iterator[int]:
    """Hold a port that is free before, as a server of a single interface does."""
    for port in range(UNUSED, UNUSED + 1000):
        with socket.socket(family, socket.SOCK_STREAM) as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                server.bind((host, port))
            except OSError:
                continue
            server.listen()
            yield port
            return
    raise AssertionError("no port is free")


def kernel(path: Path, *, ephemeral: str, reserved: str = "", unprivileged: str = "1024") -> Path:
    """Write the settings of a kernel; give their directory."""
    (path / "ip_local_port_range").write_text(f"{ephemeral}\n")
    (path / "ip_local_reserved_ports").write_text(f"{reserved}\n")
    (path / "ip_unprivileged_port_start").write_text(f"{unprivileged}\n")
    return path


class TestPorts:
    """The port that nobody has, and that nobody gets by chance."""

    def test_none_is_given_to_connections(self) -> None:
        """Here and now a port is free, unprivileged and not among those of outgoing connections."""
        low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())

        ports = {choose_port() for _ in range(50)}

        assert len(ports) > 40, "they are chosen by chance"
        assert all(1024 <= port < 65536 and not low <= port <= high for port in ports)

    @pytest.mark.parametrize(
        ("family", "host"),
        [
            (socket.AF_INET, "127.0.0.1"),
            pytest.param(socket.AF_INET6, "::1", marks=needs_ipv6),
        ],
    )
    def test_one_that_somebody_holds_is_not_chosen(
        self, family: socket.AddressFamily, host: str, tmp_path: Path
    ) -> None:
        """A listener on one interface, of IPv4 or of IPv6 only, is enough."""
        with held(family, host) as port:
            settings = kernel(tmp_path, ephemeral=f"1024 {port - 1}", reserved=f"{port + 3}-65535")

            chosen = {choose_port(settings=settings) for _ in range(10)}

        assert port not in chosen

    def test_the_chosen_one_can_be_listened_on(self) -> None:
        """Nothing holds the port, in no family."""
        port = choose_port()

        socket.create_server(("", port)).close()
        if socket.has_dualstack_ipv6():
            socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True).close()

    @given(ephemeral=st.tuples(st.integers(0, 65535), st.integers(0, 65535)), reserved=st.integers(0, 65535))
    def test_it_is_outside_of_what_is_taken(
        self, ephemeral: tuple[int, int], reserved: int, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        """Wherever the range of connections and a reserved one lie, a port is below, between or above them."""
        low, high = sorted(ephemeral)
        settings = kernel(
            tmp_path_factory.mktemp("kernel"), ephemeral=f"{low}\t{high}", reserved=f"{reserved}-{reserved + 99}"
        )
        assume(low - 1024 > 500 or 65535 - high > 500)

        port = choose_port(settings=settings)

        assert 1024 <= port < 65536
        assert not low <= port <= high
        assert not reserved <= port < reserved + 100

    def test_reserved_ports_are_left_alone(self, tmp_path: Path) -> None:
        """Single ones and ranges that an administrator has reserved are for others."""
        first = UNUSED
        reserved = f"1024-{first - 1},{first + 1},{first + 3}-{first + 5}"
        settings = kernel(tmp_path, ephemeral=f"{first + 8} 65535", reserved=reserved, unprivileged="0")

        chosen = {choose_port(settings=settings) for _ in range(50)}

        assert chosen <= {first, first + 2, first + 6, first + 7}

    def test_where_connections_may_take_all_the_kernel_is_asked(self, tmp_path: Path) -> None:
        """A port of the range is better than none."""
        settings = kernel(tmp_path, ephemeral="1024 65535")

        assert 1024 <= choose_port(settings=settings) < 65536

    @pytest.mark.parametrize("text", [None, "", "nonsense", "1 2 3", "99999999 3"])
    def test_a_kernel_that_says_nothing(self, text: str | None, tmp_path: Path) -> None:
        """Without settings, or with such as nobody knows, the usual range is avoided."""
        if text is not None:
            kernel(tmp_path, ephemeral=text, reserved=text, unprivileged=text)

        assert 1024 <= choose_port(settings=tmp_path) < 32768

    def test_refused_ones_are_not_chosen(self, tmp_path: Path) -> None:
        """Of two ports the one that was given before is not given again; when there is no other, the kernel has one."""
        with held(socket.AF_INET, "127.0.0.1") as first:
            pass
        settings = kernel(tmp_path, ephemeral=f"1024 {first - 1}", reserved=f"{first + 2}-65535")

        assert choose_port({first}, settings) != first
        assert choose_port({first, first + 1}, settings) not in {first, first + 1}


class TestStandalone:
    """One node of its own."""

    async def test_its_world_is_itself(self) -> None:
        """The node is the first and only one, and its ranks are all."""
        rendezvous = StandaloneRendezvous(3, master_port=1234, run_id="job")

        assert await rendezvous.next_round() == WorldInfo(
            group_rank=0,
            group_world_size=1,
            base_rank=0,
            world_size=3,
            master_addr="localhost",
            master_port=1234,
            run_id="job",
        )
        assert (await rendezvous.next_round()).master_port == 1234

    async def test_each_round_has_a_port_of_its_own_and_all_have_one_name(self) -> None:
        """Nobody of an old attempt finds the new one, and the logs of all are in one place."""
        rendezvous = StandaloneRendezvous(1)

        worlds = [await rendezvous.next_round() for _ in range(10)]

        assert len({world.master_port for world in worlds}) == 10
        assert len({world.run_id for world in worlds}) == 1

    async def test_two_runs_have_two_names_that_directories_can_have(self, tmp_path: Path) -> None:
        """A fresh name is readable, and the logs go into a directory of that name."""
        worlds = [await StandaloneRendezvous(1).next_round() for _ in range(2)]
        run_id = worlds[0].run_id

        DefaultLogsSpecs(log_dir=tmp_path).reify({0: {"TORCHELASTIC_RUN_ID": run_id}})

        assert run_id != worlds[1].run_id
        assert run_id.startswith("run-20")
        assert [path.name for path in tmp_path.iterdir()] == [run_id]

    def test_it_says_what_it_is(self) -> None:
        """A person sees the place, and whether the port is fixed."""
        assert repr(StandaloneRendezvous(2, run_id="a")) == (
            "<StandaloneRendezvous 2 ranks, localhost, a new port for each round, run 'a'>"
        )
        assert "port 99" in repr(StandaloneRendezvous(2, master_port=99))


class TestStatic:
    """A place among several nodes, given from outside."""

    @given(local=st.integers(1, 64), nnodes=st.integers(1, 32))
    def test_the_nodes_share_out_the_world(self, local: int, nnodes: int) -> None:
        """The ranks of all nodes together are each rank of the world once, in the order of the nodes."""
        worlds = [
            asyncio.run(StaticRendezvous(local, nnodes=nnodes, node_rank=node, master_addr="head").next_round())
            for node in {0, nnodes // 2, nnodes - 1}
        ]

        for world in worlds:
            assert world.base_rank == world.group_rank * local
            assert (world.world_size, world.group_world_size) == (nnodes * local, nnodes)

    async def test_every_round_is_the_same(self) -> None:
        """Defaults are those of torchrun, and nothing changes between the rounds."""
        rendezvous = StaticRendezvous(2, nnodes=2, node_rank=1, master_addr="10.0.0.1")
        world = await rendezvous.next_round()

        assert (world.master_addr, world.master_port, world.run_id) == ("10.0.0.1", 29500, "none")
        assert await rendezvous.next_round() == world
        assert repr(rendezvous) == ("<StaticRendezvous node 1 of 2, ranks from 2, 10.0.0.1 port 29500, run 'none'>")

    @pytest.mark.parametrize(
        ("given", "told"),
        [
            ("[::1]", "::1"),
            ("fd00::2", "fd00::2"),
            ("[fe80::1%eth0]", "fe80::1%eth0"),
            ("node-0.cluster", "node-0.cluster"),
        ],
    )
    async def test_ranks_get_an_address_without_brackets(self, given: str, told: str) -> None:
        """Brackets are for people; what the ranks pass to the system has none."""
        world = await StaticRendezvous(1, nnodes=1, node_rank=0, master_addr=given).next_round()

        assert world.master_addr == told


VALID: Final[dict[str, Any]] = {"nnodes": 2, "node_rank": 0, "master_addr": "head"}


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"nnodes": 0}, SpecificationError, r"nnodes is 0: give 1 or more"),
        ({"nnodes": "2"}, SpecificationTypeError, r"nnodes must be an int, not str"),
        ({"node_rank": 2}, SpecificationError, r"node_rank \(of 2 nodes\) is 2: give 0..1"),
        ({"node_rank": -1}, SpecificationError, r"give 0..1"),
        ({"nnodes": 1, "node_rank": 1}, SpecificationError, r"node_rank \(of 1 node\) is 1: give 0"),
        ({"node_rank": True}, SpecificationTypeError, r"must be an int, not bool"),
        ({"master_port": 0}, SpecificationError, r"master_port is 0: give 1..65535"),
        ({"master_port": 65536}, SpecificationError, r"give 1..65535"),
        ({"master_port": "80"}, SpecificationTypeError, r"must be an int, not str"),
        ({"master_addr": ""}, SpecificationError, r"name of a host or its address"),
        ({"master_addr": "two words"}, SpecificationError, r"without spaces"),
        ({"master_addr": "head\n"}, SpecificationError, r"without spaces"),
        ({"master_addr": "head:29500"}, SpecificationError, r"a host without a port"),
        ({"master_addr": "[::1]:29500"}, SpecificationError, r"give the name of a host or its address"),
        ({"master_addr": "[head]"}, SpecificationError, r"no IPv6 address"),
        ({"master_addr": "1::2::3"}, SpecificationError, r"no IPv6 address"),
        ({"master_addr": None}, SpecificationTypeError, r"must be a str, not NoneType"),
        ({"run_id": "a/b"}, SpecificationError, r"run_id names a directory, and 'a/b' cannot"),
        ({"run_id": "x" * 300}, SpecificationError, r"1 to 200 bytes"),
        ({"run_id": "\ud800"}, SpecificationError, r"run_id names a directory"),
        ({"run_id": 7}, SpecificationTypeError, r"run_id must be a str, not int"),
    ],
)
def test_a_place_that_cannot_be_is_refused(changed: dict[str, Any], error: type[Exception], message: str) -> None:
    """Each value is checked where it is given, and the error says what would do; so does the standalone one."""
    with pytest.raises(error, match=message):
        StaticRendezvous(1, **VALID | changed)

    if not {"nnodes", "node_rank"} & set(changed) and changed != {"master_addr": None}:
        with pytest.raises(error, match=message):
            StandaloneRendezvous(1, **changed)


@pytest.mark.parametrize("size", [0, -1, True, 1.0, "2", None])
def test_a_node_runs_a_number_of_ranks(size: Any) -> None:
    """Nodes of no ranks, and of ranks that cannot be counted, are refused by both."""
    with pytest.raises(SpecificationError, match="local_world_size"):
        StandaloneRendezvous(size)
    with pytest.raises(SpecificationError, match="local_world_size"):
        StaticRendezvous(size, **VALID)
