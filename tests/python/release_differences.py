"""What a release of PyTorch does otherwise: tests that it cannot pass are skipped there, with the reason."""

from torch_xla._torch_release import RELEASE

# The release that the pages and lists of names are made from.
OF_PAGES = (2, 13)
PAGES = {"test_the_page_of_operators_is_up_to_date"}

# By the test's name, with or without its parameters: the first release that the reason holds for, and the reason.
SINCE = {
    "test_number_in_the_range_of_the_type[pad]": ((2, 14), "eager refuses to pad by a number out of the type's range"),
    "test_second_gradient[nn.functional.scaled_dot_product_attention]": (
        (2, 14),
        "eager's attention of three dims is the flash kernel, which has no second gradient",
    ),
    "test_types_are_refused_at_the_call[cubic samples of a volume]": ((2, 15), "eager computes these"),
    "test_bad_arguments_raise_as_in_eager[aminmax]": ((2, 15), "eager refuses one tensor for both results"),
    "test_autocast_computes_in_float32[cholesky]": ((2, 14), "torch.cholesky raises: it is gone"),
}

# Graphs of torch.compile that compute a checkpoint again take generators, also where their attention drops nothing.
CHECKPOINTS_TAKE_GENERATORS = RELEASE < (2, 14)


def find_release_difference(item) -> str | None:
    """The reason why the test cannot pass on the release at hand, or None."""
    name = item.name.partition("[")[0]
    if RELEASE != OF_PAGES and name in PAGES:
        return f"the page is that of PyTorch {OF_PAGES[0]}.{OF_PAGES[1]}"
    since, reason = SINCE.get(item.name) or SINCE.get(name) or (None, None)
    return reason if since and RELEASE >= since else None
