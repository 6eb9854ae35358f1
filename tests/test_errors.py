"""The tree of errors, and what of an error may travel."""

from __future__ import annotations

import re
from collections.abc import Iterator

from zerosum import errors
from zerosum.errors import BadData, ZerosumError


def below(kind: type[ZerosumError], depth: int = 0) -> Iterator[tuple[int, type[ZerosumError]]]:
    yield depth, kind
    for child in kind.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from below(child, depth + 1)


def test_errors_docstring_shows_class_tree() -> None:
    drawn = re.findall(r"^((?:[│├└─ ]{4})*)(\w+)(?=\s|$)(.*)$", (errors.__doc__ or "").split("\n\n")[1], re.MULTILINE)
    assert [(len(indent) // 4, name) for indent, name, _ in drawn] == [
        (d, kind.__name__) for d, kind in below(ZerosumError)
    ]
    kinds = {kind.__name__: kind for _, kind in below(ZerosumError)}
    for _, name, said in drawn:
        if code := re.search(r"exit code (\d+)", said):
            assert kinds[name].exit_code == int(code[1])


def test_error_detail_is_not_sent_to_others() -> None:
    error = BadData("not finite", detail="row 17")
    said = error.about("site 'a'")
    assert isinstance(said, BadData)
    assert (str(said), said.detail) == ("site 'a': not finite", "row 17")
    travels = said.public()
    assert (type(travels), str(travels), travels.detail) == (BadData, str(said), "")
    assert "17" not in repr(vars(travels))
