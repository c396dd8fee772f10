"""Finding a stream's bytes in its file again."""

from hypothesis import given
from hypothesis import strategies as st

from aioelastic._logs.moves import Piece
from aioelastic._logs.places import Places


def test_one_run_after_what_the_file_held() -> None:
    """Bytes that came in one after the other are found from any position on, as many as there are."""
    places = Places()
    places.add(Piece(b"one", 100, 3))
    places.add(Piece(b"two", 103, 3))

    assert places.find(0) == (0, 100, 6)
    assert places.find(4) == (4, 104, 2)
    assert places.find(6) == (6, 0, 0)


def test_what_an_emptied_file_had_is_lost() -> None:
    """After somebody has emptied the file a position before that leads to the first byte after it."""
    places = Places()
    places.add(Piece(b"gone", 0, 4))
    places.add(Piece(b"kept", 0, 4, anew=True))

    assert places.find(1) == (4, 0, 4)
    assert places.cuts == 1


def test_what_could_not_be_read_back_has_its_position() -> None:
    """Bytes that were lost on the way count for the positions of those after them."""
    places = Places()
    places.add(Piece(b"o", 0, 1, lost=2))
    places.add(Piece(b"two", 0, 3, anew=True))

    assert places.end == 6
    assert places.find(1) == (3, 0, 3)


def test_what_the_file_did_not_take_is_not_there() -> None:
    """Of a file that failed there is what it took, and no more."""
    places = Places()
    places.add(Piece(b"whole", 0, 5))
    places.add(Piece(b"half", 5, 2))
    places.add(Piece(b"none"))

    assert places.find(3) == (3, 3, 4)
    assert places.find(7) == (13, 0, 0)


@given(st.lists(st.tuples(st.binary(min_size=1, max_size=9), st.binary(max_size=3)), max_size=30), st.data())
def test_remarks_of_others_are_left_out(written: list[tuple[bytes, bytes]], data: st.DataObject) -> None:
    """Whatever others write between the stream's bytes, those are found from any position on."""
    places, file, stream = Places(), b"", b""
    for piece, remark in written:
        places.add(Piece(piece, len(file), len(piece)))
        file += piece + remark
        stream += piece
    start = position = data.draw(st.integers(0, len(stream)))
    found = b""
    while position < places.end:
        position, place, count = places.find(position)
        found += file[place : place + count]
        position += count

    assert found == stream[start:]
