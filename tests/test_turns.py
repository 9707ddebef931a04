"""The boards: turns of a ball by SciPy's rotations, letters read backwards, pictures, and the set as it is loaded."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from geolib.lab.data import order_task, sets, turns

WAYS = {"corner": order_task.corner_way, "stairs": order_task.stairs_way}
every_way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


def test_letters_tip_by_an_eighth_of_a_turn_the_top_right_or_towards_us():
    np.testing.assert_allclose(order_task.TIPS[1], Rotation.from_euler("y", 45, degrees=True).as_matrix(), atol=1e-12)
    np.testing.assert_allclose(order_task.TIPS[2], Rotation.from_euler("x", 45, degrees=True).as_matrix(), atol=1e-12)
    assert (order_task.TIPS[1] @ [0, 0, 1])[0] > 0
    assert (order_task.TIPS[2] @ [0, 0, 1])[1] < 0


@every_way
def test_the_ball_obeys_the_letters_between_the_marks_in_order(way):
    for board in order_task.boards(20, way, seed=5):
        turned = Rotation.identity()
        for cell in board.way[1:-1]:
            axis = {0: [0, 0, 0], 1: [0, 1, 0], 2: [1, 0, 0]}[board.letters[cell]]
            turned = Rotation.from_rotvec(np.array(axis) * np.pi / 4) * turned
        np.testing.assert_allclose(board.orientation(), turned.as_matrix(), atol=1e-9)
        z = turned.as_rotvec()[2]
        assert np.sign(board.twist()) == np.sign(z)


def test_letters_read_backwards_twist_the_other_way():
    for board in order_task.boards(50, order_task.stairs_way, seed=6):
        back = order_task.Board(board.letters.copy(), board.way)
        between = board.way[1:-1]
        for cell, other in zip(between, reversed(between)):
            back.letters[cell] = board.letters[other]
        assert back.twist() == pytest.approx(-board.twist(), abs=1e-9)


@every_way
def test_ways_go_right_and_down_and_stay_on_the_board(way):
    corners = set()
    for board in order_task.boards(60, way, seed=7):
        cells = np.array(board.way)
        moves = np.diff(cells, axis=0)
        assert set(map(tuple, moves.tolist())) == {(0, 1), (1, 0)}
        assert cells.min() >= 0
        assert cells.max() < turns.SIDE
        assert moves.sum(0).max() <= turns.LONGEST
        corners.add(int((np.diff(moves, axis=0) != 0).any(1).sum()))
    assert (corners == {1}) == (way is order_task.corner_way)


@every_way
def test_a_picture_has_the_letters_the_marks_and_the_way_where_it_is_drawn(way):
    for board in order_task.boards(10, way, seed=3):
        with np.errstate(all="raise"):
            drawn, plain = board.picture(True), board.picture(False)
        assert np.array_equal(drawn[:4], plain)
        assert set(np.unique(drawn)) == {0, 255}
        first, second, begins, ends, passed = (set(zip(*np.nonzero(channel))) for channel in drawn)
        assert (first, second) == tuple(set(zip(*np.nonzero(board.letters == letter))) for letter in (1, 2))
        assert (begins, ends, passed) == ({board.way[0]}, {board.way[-1]}, set(board.way))


def test_classes_are_even_and_seeds_decide():
    for seed in range(8):
        labels = [board.twist() > 0 for board in order_task.boards(7, order_task.corner_way, seed=seed)]
        assert (labels.count(False), labels.count(True)) == (4, 3)
    one, same, other = (order_task.boards(5, order_task.corner_way, seed=s)[0].letters for s in (0, 0, 1))
    assert (one == same).all()
    assert (one != other).any()


@pytest.mark.parametrize("order", [0.0, 0.5, 3.0])
def test_a_tilt_counts_the_letters_between_the_marks_and_weighs_their_order(order):
    for board in order_task.boards(20, order_task.corner_way, seed=7):
        between = [board.letters[cell] for cell in board.way[1:-1]]
        turned = Rotation.identity()
        for letter in between:
            turned = Rotation.from_rotvec(np.pi / 4 * np.array([letter == 2, letter == 1, 0])) * turned
        matrix = turned.as_matrix()
        counted = sum(letter == 1 for letter in between) - sum(letter == 2 for letter in between)
        assert board.tilt(order) == pytest.approx(counted + order * (matrix[1, 0] - matrix[0, 1]))


@pytest.mark.parametrize("order", [2])
def test_a_set_of_tilts_is_labelled_by_them(order):
    """Read back from the pictures: along the row of the first mark, then down the column of the last."""
    data = sets.load(f"turns-{order}")
    assert (data.name, data.classes) == (f"turns-{order}", ("below", "above"))
    for picture, label in zip(data.x_test[:200].numpy(), data.y_test[:200]):
        (top, left), (bottom, right) = (np.argwhere(picture[channel])[0] for channel in (2, 3))
        way = [(top, c) for c in range(left, right + 1)] + [(r, right) for r in range(top + 1, bottom + 1)]
        letters = np.where(picture[0] > 0, 1, np.where(picture[1] > 0, 2, 0))
        turned, counted = Rotation.identity(), 0
        for cell in way[1:-1]:
            tips = np.pi / 4 * np.array([letters[cell] == 2, letters[cell] == 1, 0])
            turned, counted = Rotation.from_rotvec(tips) * turned, counted + (0, 1, -1)[letters[cell]]
        matrix = turned.as_matrix()
        assert (counted + order * (matrix[1, 0] - matrix[0, 1]) > 0) == bool(label)
