"""The model in the page: its logits are PyTorch's, its accuracies the records', and it answers the reader's hand."""

import cmath
import math
import re

import pytest
import torch
from explorable_kit import REPOSITORY, functions_of, place_of, restored
from torch.testing import assert_close

from geolib.encodings import ALiBi, LieRE, LocalityFocusing, RiemannFormer, RoPE, Sinusoidal
from geolib.explorables import LiveModel
from geolib.explorables.export import calm_part, exported
from geolib.explorables.live import METHODS, WEIGHTS, held_out, model_of
from geolib.lab import Config, load, read_all, train
from geolib.lab.experiments.papers.digits import HELD_OUT, LIVE
from geolib.lab.probes.lm import layer_inputs
from geolib.lab.probes.vit import moved_accuracy
from geolib.lab.vit import ViT

RECORDS = REPOSITORY / "book" / "results" / LIVE.name
every = pytest.mark.parametrize("method", METHODS)

MORE = """
const known = new Map();
const whole = ({ about, numbers }) => {
  if (!known.has(numbers)) known.set(numbers, read({ about, numbers }));
  return known.get(numbers);
};
export function logitsOf(given, at, images) {
  const net = whole(given), placed = stand(net, at);
  return images.map((pixels) => [...forward(net, placed, pixels).logits]);
}
export function lookOf(given, at, pixels, layer, head) {
  const { seen } = forward(whole(given), stand(whole(given), at), pixels, true);
  return [[...seen[layer][head].scores], [...seen[layer][head].weights]];
}
export function carryOf(given, at, layer, head, query, pair) {
  const net = whole(given);
  return carry(stand(net, at).layers[layer][head], net.tokens, net.dim, query, pair);
}
"""


call = functions_of("live.js", MORE)
opened, place = place_of("LiveModel")


def images():
    return torch.tensor([ord(letter) - 97 for letter in held_out()["images"]]).view(-1, 1, 8, 8)


def shuffled():
    orders = torch.tensor([ord(letter) - 48 for letter in held_out()["orders"]]).view(-1, 64)
    return images().flatten(1).gather(1, orders).view(-1, 1, 8, 8)


def model(method):
    about = model_of(method)["about"]
    return restored(about, (WEIGHTS / f"{method}.bin").read_bytes()), about


def standard(about, some):
    return (some.float() - about["moments"][0]) / about["moments"][1]


def moved(net, about, method, row, column):
    """The model with its tokens moved; the table of learned vectors is the page's, which is larger."""
    if method == "learned":
        binary = torch.frombuffer(bytearray((WEIGHTS / "learned.bin").read_bytes()), dtype=torch.float16)
        net.encoding.grid = (12, 12)
        net.encoding.vectors = torch.nn.Parameter(binary[-12 * 12 * 32 :].view(12, 12, 32).float())
    net.positions.add_(torch.tensor([row, column]))
    return net


def accuracy(net, about, some):
    labels = torch.tensor([int(figure) for figure in held_out()["labels"]])
    with torch.no_grad():
        return (net(standard(about, some)).argmax(1) == labels).float().mean().item()


# In Python: what the page holds is what the records tell ------------------------------------------------------------


@every
def test_each_model_is_a_small_file_and_the_one_that_a_record_tells_of(method):
    net, about = model(method)
    assert (WEIGHTS / f"{method}.bin").stat().st_size <= 60_000
    record = next(record for record in read_all(RECORDS) if record.name == about["record"])
    assert (record.config, record.experiment) == (LIVE.config("cpu", method, "digits-varied", 0), LIVE.name)
    assert Config.from_dict(about["config"]) == record.config
    # Sixteen bits move a digit or two of 200 across a border.
    close = {"abs": 2.001 / HELD_OUT}
    assert accuracy(net, about, images()) == pytest.approx(record.accuracy, **close)
    assert accuracy(net, about, shuffled()) == pytest.approx(record.learned["shuffled_accuracy"], **close)
    for shift, there in zip((1, 2, 3, 4), record.learned["moved_accuracy"]):
        found = accuracy(moved(model(method)[0], about, method, shift, shift), about, images())
        if method == "learned" and shift < 4:  # the vectors beyond the trained cells are other ones
            assert max(found, there) < 0.6
        else:
            assert found == pytest.approx(there, **close)


def test_a_model_that_the_page_does_not_hold_is_refused():
    with pytest.raises(ValueError, match=r"^model: got"):
        LiveModel(ViT(Config("digits", "compass", width=12, layers=1), (1, 8, 8), 10))
    with pytest.raises(ValueError, match=r"^method: got own"):
        LiveModel(method="own")


# In Node: the logits are PyTorch's ------------------------------------------------------------------------------------


# What the page's settings do, done to the model's own parts: kinds of parts, and a change of each.
ANGLES = RoPE | Sinusoidal | RiemannFormer


def alone(part, factor):
    """The fifth pair's own angle."""
    if isinstance(part, ANGLES):
        part.frequencies[..., 4, :].mul_(factor)
    elif part.width == 2:
        part.generators[:, :, 4].mul_(factor)


def rest(part, share):
    """Of the second generator's blocks, this share of what does not commute with the first."""
    if part.width == 2:  # plane turns commute
        return
    calm = calm_part(part.generators / part.unit[:, None], part.width) * part.unit[1]
    part.generators[..., 1, :].copy_(calm + share * (part.generators[..., 1, :] - calm))


TURNS = [
    ({}, object, lambda part: None),
    ({"turn": 0.7}, ANGLES | LieRE, lambda p: (p.frequencies if isinstance(p, ANGLES) else p.generators).mul_(0.7)),
    ({"pair": 4, "alone": 2.5}, ANGLES | LieRE, lambda part: alone(part, 2.5)),
    ({"scale": 0.9}, RiemannFormer, lambda p: p.raw_scale.copy_(p.law.raw(torch.full_like(p.raw_scale, 0.9)))),
    ({"rest": 0.3}, LieRE, lambda part: rest(part, 0.3)),
    ({"focus": 0.5}, LocalityFocusing, lambda part: part.log_sigma.add_(math.log(0.5))),
    ({"slope": 3}, ALiBi, lambda part: part.slopes.mul_(3)),
]


@every
def test_logits_and_weights_are_those_of_the_model(call, method):
    some, calls, expected = images()[:6], [], []
    for row, column in ((0, 0), (2, 3)):
        for settings, kinds, change in TURNS:
            net, about = model(method)
            moved(net, about, method, row, column)
            with torch.no_grad():
                for part in net.encoding.modules():
                    if isinstance(part, kinds):
                        change(part)
                expected.append(net(standard(about, some)))
            at = {"row": row, "column": column, **settings}
            calls.append([model_of(method), at, some.flatten(1).tolist()])
    for found, wanted in zip(call("logitsOf", calls), expected):
        assert_close(torch.tensor(found), wanted, rtol=0, atol=1e-3)
    net, about = model(method)
    for layer in (0, 1):
        attention = net.blocks[layer].attention
        with layer_inputs([attention]) as inputs:
            net(standard(about, some[:1]))
        maps = attention.weights(*inputs[0])[0]
        calls = [[model_of(method), {}, some[0].flatten().tolist(), layer, head] for head in (0, 1)]
        for head, (_, weights) in enumerate(call("lookOf", calls)):
            assert_close(torch.tensor(weights).view(64, 64), maps[head].detach(), rtol=0, atol=1e-4)


def test_the_readers_own_model_answers_as_it_does_in_python(call):
    config = Config("digits", "rope-axial+lf", width=16, heads=2, layers=3, epochs=1, train_size=48, test_size=8)
    run = train(config, quiet=True)
    widget = LiveModel(run)
    assert widget.method == "own"
    about, numbers = exported(run.model, (run.task.mean, run.task.std), config=config.to_dict())
    net, pixels = restored(about, numbers), run.task.x_test[:3]
    assert about == widget._later_own["about"] | {"config": config.to_dict()}
    (found,) = call("logitsOf", [[widget._later_own, {}, pixels.flatten(1).tolist()]])
    with torch.no_grad():
        assert_close(torch.tensor(found), net(standard(about, pixels)), rtol=0, atol=1e-3)
    assert moved_accuracy(run, 2) >= 0


# In a browser ---------------------------------------------------------------------------------------------------------


def counted(place):
    """Of the held-out digits how many per cent are read rightly, once all are counted."""
    place.page.wait_for_function("document.querySelector('#one .said p[aria-busy=false]')", timeout=30_000)
    return float(place.page.locator("#one .said b").last.text_content().removesuffix(" %"))


def test_the_sheet_follows_a_hand_and_its_own_keys_and_taps_ask_its_cells(place):
    field = place.page.locator("#one .field")
    for part, cells, (column, row) in ((field, 12, (5, 1)), (place.page.locator("#one .look svg").first, 8, (2, 6))):
        box = part.bounding_box()
        size = box["width"] / cells
        place.page.mouse.click(box["x"] + (column + 0.5) * size, box["y"] + (row + 0.5) * size)
        assert place.values()["query"] == 8 * row + column
    cell, before = field.bounding_box()["width"] / 12, place.text(".said b")
    place.drag(field, 3 * cell, 2 * cell)
    assert (place.values()["row"], place.values()["column"]) == (2, 3)
    place.page.locator("#one .hands").focus()
    for key in ("ArrowDown", "ArrowRight", "ArrowRight", "ArrowLeft", " "):  # no pen, no ink
        place.page.keyboard.press(key)
    # Four cells are as far as it goes.
    assert [place.values()[name] for name in ("row", "column", "digit")] == [3, 3, 0]
    assert place.text(".said b") == before


def test_a_blank_sheet_says_that_it_is_blank_and_nothing_is_guessed_of_it(place):
    place.page.get_by_role("button", name="Blank").click()
    assert place.text(".said").startswith("The sheet is blank")
    assert place.page.locator("#one .geo-wager:visible").count() == 0
    place.page.wait_for_function("document.querySelector('#one [aria-live=polite]').textContent.includes('blank')")


def test_a_guess_takes_the_digit_to_the_other_corner_and_each_method_has_its_own(place):
    guess = place.page.locator("#one .geo-wager:visible button")
    guess.filter(has_text="Yes").click()
    place.page.wait_for_function("models.one.values.row === 4 && models.one.values.column === 4")
    assert place.page.locator("#one .right:visible").all_text_contents() == ["Yes"]
    place.set(method="learned", row=0, column=0)
    assert place.page.locator("#one .geo-wager:visible :is(.right, [aria-pressed=true])").count() == 0


def test_a_stroke_leaves_ink_on_a_blank_sheet_and_is_read(place):
    place.page.get_by_role("button", name="Draw").click()
    assert place.values()["digit"] == -1
    box = place.page.locator("#one .field").bounding_box()
    cell = box["width"] / 12
    place.page.mouse.move(box["x"] + 4.2 * cell, box["y"] + 0.8 * cell)
    place.page.mouse.down()
    place.page.mouse.move(box["x"] + 4.2 * cell, box["y"] + 7.2 * cell, steps=5)
    place.page.mouse.up()
    place.settle()
    ink = torch.tensor(place.values()["ink"]).view(8, 8)
    assert ink[:7, 4].min() > 4  # down column 4, and nothing else
    assert ink[:, :3].sum() == ink[:, 6:].sum() == 0
    assert place.text(".said b") == "1"


def test_the_line_counts_what_the_records_count(place):
    for method, row in (("rope-axial", 0), ("rope-axial", 4), ("liere-8", 2)):
        place.set(method=method, row=row, column=row)
        net, about = model(method)
        wanted = accuracy(moved(net, about, method, row, row), about, images())
        assert counted(place) == pytest.approx(100 * wanted, abs=0.51)
    place.set(shuffled=1)
    assert counted(place) < 40


def test_the_cell_that_is_asked_is_outlined_and_arrows_turn_as_far_as_their_cells_are_away(place):
    """Of axial RoPE's first pair, one radian a row; counter-clockwise is up on the screen."""
    place.set(method="rope-axial", view="arrows", query=8 * 3 + 4, pair=0)
    for each in place.page.locator("#one rect.asked").all():
        assert [float(each.get_attribute(name)) for name in "xy"] == [4 * 24 + 1, 3 * 24 + 1]
    path = place.page.locator("#one .look path.carried").get_attribute("d")
    needles = [
        [complex(float(x), -float(y)) for x, y in re.findall(r"(-?[\d.]+) (-?[\d.]+)", each)[:2]]
        for each in path.split("M")[1::2]
    ]
    assert len(needles) == 64
    for cell, (start, tip) in enumerate(needles):
        assert abs((tip - start) / abs(tip - start) - cmath.rect(1, cell // 8 - 3)) < 0.03


def test_a_model_of_ones_own_is_shown_digits_as_it_was_trained_on_them():
    """Standardised by the moments of the training images, where nothing else is known."""
    data = load("digits")
    own = LiveModel(ViT(Config("digits", "rope-axial", width=16, heads=2, layers=1, patch=1), (1, 8, 8), 10))._later_own
    pixels = data.x_train.float()
    assert own["about"]["moments"] == pytest.approx([float(pixels.mean()), float(pixels.std())], rel=1e-3)
    assert abs(float(pixels.mean()) / float(data.x_test.float().mean()) - 1) > 2e-3  # else nothing is tested
