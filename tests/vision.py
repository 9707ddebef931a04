"""torchvision for the tests, also beside a torch that it was not compiled for."""

import importlib

import torch

OPERATORS = ("nms", "qnms")


def import_torchvision():
    """The module. Its Python part is all that the tests need, but it asks for two compiled operators on import."""
    try:
        return importlib.import_module("torchvision")
    except RuntimeError:
        for operator in OPERATORS:
            library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        return importlib.import_module("torchvision")


library = torch.library.Library("torchvision", "FRAGMENT")  # an operator lives as long as its library
