"""Two processes train one model with PyTorch, save it as they go, and resume after one of them was killed.

    aioelastic run --nproc-per-node 2 --max-restarts 1 docs/examples/train_ddp.py --die-at 33

Nothing in it knows which launcher runs it: put ``torchrun`` in place of ``aioelastic run``, and it does the same. It
needs PyTorch and nothing else; the data, pictures of 28 by 28 points in 10 classes, is made by the script itself.

With ``--die-at`` the last rank kills itself in the first attempt. The next attempt reads the checkpoint, and since the
pictures of each step depend on the step's number only, it ends with the same losses as a run that was never killed.
The checkpoint stays, ``train_ddp.pt`` in the working directory; without it the training begins anew.
"""

import argparse
import os
import signal
from pathlib import Path

import torch

BATCH = 64
CLASSES = 10
PICTURES = 1024


def make_pictures(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Make pictures and their classes: each class is a pattern, moved a little and covered with noise."""
    patterns = torch.randn(CLASSES, 1, 7, 7, generator=torch.Generator().manual_seed(0))
    patterns = torch.nn.functional.interpolate(patterns, size=(28, 28), mode="bilinear")
    chance = torch.Generator().manual_seed(seed)
    classes = torch.randint(CLASSES, (PICTURES,), generator=chance)
    moves = torch.randint(-4, 5, (PICTURES, 2), generator=chance).tolist()
    moved = [torch.roll(patterns[each], move, dims=(1, 2)) for each, move in zip(classes.tolist(), moves, strict=True)]
    return torch.stack(moved) + torch.randn(PICTURES, 1, 28, 28, generator=chance), classes


def make_model() -> torch.nn.Module:
    """Make a small convolutional network."""
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 8, kernel_size=5, stride=2),
        torch.nn.ReLU(),
        torch.nn.Conv2d(8, 16, kernel_size=5, stride=2),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(256, CLASSES),
    )


class Training:
    """A model on its way, the same in all ranks.

    Attributes:
        step: How many steps it has made.
    """

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.step = 0
        self._model = torch.nn.parallel.DistributedDataParallel(make_model())
        self._optimizer = torch.optim.Adam(self._model.parameters(), lr=0.003)
        self._pictures, self._classes = make_pictures(seed=1)

    def save(self, path: Path) -> None:
        """Save everything, by rank 0; whoever reads meanwhile finds the former checkpoint or this one, never half."""
        if torch.distributed.get_rank() == 0:
            unfinished = path.with_suffix(".new")
            state = {"step": self.step, "model": self._model.state_dict(), "optimizer": self._optimizer.state_dict()}
            torch.save(state, unfinished)
            unfinished.replace(path)

    def load(self, path: Path) -> None:
        """Go on where a checkpoint stopped."""
        state = torch.load(path, weights_only=True)
        self.step = state["step"]
        self._model.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])

    def advance(self) -> float:
        """Learn from one batch, of which each rank takes its share; give the loss of all."""
        rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
        chance = torch.Generator().manual_seed(self.step)
        share = torch.randperm(PICTURES, generator=chance)[: BATCH * ranks][rank::ranks]
        loss = torch.nn.functional.cross_entropy(self._model(self._pictures[share]), self._classes[share])
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()
        self.step += 1
        return mean(loss.detach())

    def accuracy(self) -> float:
        """Give the part of pictures it has never seen that it tells right."""
        rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
        pictures, classes = make_pictures(seed=2)
        with torch.no_grad():
            told = self._model(pictures[rank::ranks]).argmax(dim=1)
        return mean((told == classes[rank::ranks]).float().mean())


def mean(value: torch.Tensor) -> float:
    """Give the mean of all ranks' values."""
    torch.distributed.all_reduce(value)
    return float(value / torch.distributed.get_world_size())


def train(options: argparse.Namespace) -> None:
    """Be one rank: resume, train to the end, and have rank 0 tell of it."""
    rank, last = torch.distributed.get_rank(), torch.distributed.get_world_size() - 1
    first_attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"
    training = Training()
    if options.checkpoint.exists():
        training.load(options.checkpoint)
    if rank == 0:
        print(f"resumed from step {training.step}" if training.step else f"new model, {last + 1} ranks")
    while training.step < options.steps:
        loss = training.advance()
        if rank == 0 and training.step % 10 == 0:
            print(f"step {training.step:3} of {options.steps}: loss {loss:.4f}")
        if training.step % options.save_every == 0:
            training.save(options.checkpoint)
        if first_attempt and rank == last and training.step == options.die_at:
            print(f"rank {rank} kills itself after step {training.step}")
            os.kill(os.getpid(), signal.SIGKILL)
    accuracy = training.accuracy()
    if rank == 0:
        print(f"done: {accuracy:.1%} of the test pictures are told right")


def main() -> None:
    """Read the arguments, and take part in the group."""
    parser = argparse.ArgumentParser(description="Train a small model; to be run by aioelastic run, or by torchrun.")
    parser.add_argument("--checkpoint", type=Path, default=Path("train_ddp.pt"), help="file to save to and resume from")
    parser.add_argument("--save-every", type=int, default=10, metavar="STEPS")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--die-at", type=int, metavar="STEP", help="have the last rank kill itself once, after a step")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    try:
        train(options)
    finally:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
