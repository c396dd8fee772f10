"""Classes that say where logs go, by the names of their entry points."""

import importlib.util
import subprocess
import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from aioelastic._cli.named_logs_specs import make_logs_specs
from aioelastic._errors.exceptions import SpecificationError
from aioelastic._logs.destinations import LogsDest
from aioelastic._logs.specs import DefaultLogsSpecs, LogsSpecs
from aioelastic._logs.std import Std
from tests.helpers.drivers import ROOT


def make(name: str, log_dir: str | None = None, tee: Std | dict[int, Std] = Std.OUT) -> LogsSpecs:
    """Make an object of a class."""
    return make_logs_specs(name, log_dir=log_dir, redirects=Std.NONE, tee=tee, local_ranks_filter=frozenset({0}))


def refusal(name: str) -> str:
    """Name what cannot be used, and give the error's text."""
    with pytest.raises(SpecificationError) as caught:
        make(name)
    return str(caught.value)


PLUGIN: Final = """
from aioelastic import DefaultLogsSpecs

class Mine(DefaultLogsSpecs):
    pass

class Other:
    pass

class Picky(DefaultLogsSpecs):
    def __init__(self, log_dir):
        raise RuntimeError("no")
"""


def install(place: Path, monkeypatch: pytest.MonkeyPatch, entries: Mapping[str, str]) -> None:
    """Install a package that has nothing but entry points for logs."""
    info = place / "plugin_of_logs_specs-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin_of_logs_specs\nVersion: 1.0\n")
    lines = "".join(f"{entry} = {value}\n" for entry, value in entries.items())
    (info / "entry_points.txt").write_text(f"[torchrun.logs_specs]\n{lines}")
    monkeypatch.syspath_prepend(str(place))


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Install classes that say where logs go, and give the name of their module."""
    name = "plugin_of_logs_specs"
    (tmp_path / f"{name}.py").write_text(PLUGIN)
    classes = {"mine": "Mine", "other": "Other", "picky": "Picky", "gone": "Gone"}
    install(tmp_path, monkeypatch, {entry: f"{name}:{kind}" for entry, kind in classes.items()})
    monkeypatch.delitem(sys.modules, name, raising=False)
    return name


def test_a_class_of_somebody_elses_for_the_logs(plugin: str, tmp_path: Path) -> None:
    """It is found by its entry point and made with what the options say."""
    specs = make("mine", f"{tmp_path}/logs")

    assert (type(specs).__module__, type(specs).__name__) == (plugin, "Mine")
    assert (specs.log_dir, specs.tee, specs.local_ranks_filter) == (f"{tmp_path}/logs", Std.OUT, frozenset({0}))


def test_classes_for_the_logs_that_cannot_be_used(plugin: str) -> None:
    """The error says what is wrong with the class, or which names there are."""
    assert refusal("other").endswith(f"{plugin}:Other is no class derived from aioelastic.LogsSpecs")
    assert refusal("gone").startswith(f"--logs-specs gone: {plugin}:Gone cannot be imported (Attribut")
    assert "by name, and raised TypeError: " in refusal("picky")
    assert refusal("x").endswith("give one of default, gone, mine, other, picky")


def test_torchs_own_class_for_the_logs_is_ours() -> None:
    """``default`` needs no torch, whether it is installed or not."""
    before = "torch" in sys.modules

    assert type(make("default")) is DefaultLogsSpecs
    assert ("torch" in sys.modules) is before


STAND_IN: Final = """
from dataclasses import dataclass
from enum import IntFlag

class Std(IntFlag):
    NONE = 0
    OUT = 1
    ERR = 2
    ALL = 3

@dataclass
class LogsDest:
    stdouts: dict
    stderrs: dict
    tee_stdouts: dict
    tee_stderrs: dict
    error_files: dict

class LogsSpecs:
    def __init__(self, log_dir, redirects, tee, local_ranks_filter):
        assert type(redirects) is type(tee[1]) is Std and type(local_ranks_filter) is set
        self.log_dir, self.tee, self.root_log_dir = log_dir, tee, log_dir

    def reify(self, envs):
        paths = {rank: f"{self.log_dir}/{env.pop('TORCHELASTIC_RUN_ID')}" for rank, env in envs.items()}
        return LogsDest(paths, {}, {rank: paths[rank] for rank in self.tee}, {}, {})
"""
"""As much of torch's module as a class for logs has to do with; it is as particular about types, as changes envs."""


def test_a_class_derived_from_what_looks_like_torchs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets flags and variables of its own, and what it gives is made ours."""
    name = "torch.distributed.elastic.multiprocessing.api"
    module = types.ModuleType(name)
    monkeypatch.setitem(sys.modules, name, module)
    exec(STAND_IN, module.__dict__)
    install(tmp_path, monkeypatch, {"theirs": f"{name}:LogsSpecs"})
    envs = {rank: {"TORCHELASTIC_RUN_ID": "job"} for rank in range(2)}

    specs = make("theirs", "/logs", tee={1: Std.OUT})
    dest = specs.reify(envs)

    assert (specs.root_log_dir, specs.log_dir, specs.tee) == ("/logs", "/logs", {1: Std.OUT})
    assert dest == LogsDest({0: "/logs/job", 1: "/logs/job"}, {}, {1: "/logs/job"})
    assert envs[0] == {"TORCHELASTIC_RUN_ID": "job"}


DERIVED: Final = """
import sys
from aioelastic._cli.named_logs_specs import TorchLogsSpecs
from aioelastic import Std
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs

class Derived(DefaultLogsSpecs):
    pass

specs = TorchLogsSpecs(Derived, log_dir=sys.argv[1], redirects={0: Std.ERR}, tee={1: Std.ALL}, local_ranks_filter={1})
envs = {rank: {"TORCHELASTIC_RUN_ID": "job"} for rank in range(2)}
dest = specs.reify(envs)
print(specs.root_log_dir == sys.argv[1], envs[0])
for paths in (dest.stderrs, dest.tee_stdouts, dest.error_files):
    print(*(path[-20:] for path in paths.values()))
"""


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
def test_a_class_derived_from_torchs_for_the_logs(tmp_path: Path) -> None:
    """It is used as it is, and changes nothing that is ours."""
    command = [sys.executable, "-c", DERIVED, str(tmp_path)]

    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)

    assert done.stdout.splitlines() == [
        "True {'TORCHELASTIC_RUN_ID': 'job'}",
        "attempt_0/0/stderr.log"[-20:] + " " + "attempt_0/1/stderr.log"[-20:],
        "attempt_0/1/stdout.log"[-20:],
        "attempt_0/0/error.json"[-20:] + " " + "attempt_0/1/error.json"[-20:],
    ]
