"""Work that is spread over processes comes back as if it had been done in one."""

import math
import os

import pytest

from tests.processes import spread


def test_results_come_in_the_order_of_the_parts() -> None:
    assert list(spread(math.sqrt, [9.0, 4.0, 1.0, 0.0])) == [3.0, 2.0, 1.0, 0.0]


def _process(_part: int) -> int:
    return os.getpid()


def test_a_part_is_worked_on_elsewhere_unless_it_is_the_only_one() -> None:
    assert os.getpid() not in list(spread(_process, [1, 2]))
    assert list(spread(_process, [1])) == [os.getpid()]


def test_the_first_part_that_fails_is_raised_after_the_results_before_it() -> None:
    came: list[float] = []
    with pytest.raises(ValueError, match="math domain error"):
        came.extend(spread(math.sqrt, [4.0, -1.0, 9.0, -1.0]))
    assert came == [2.0]
