"""Page of an operator's plan, for `derive` and `report`."""

from __future__ import annotations

import shlex
from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from simgpu.tools.shared.outputs import claim

if TYPE_CHECKING:
    from simgpu.operators.tree import Root
    from simgpu.tools.tables.resources import ResourceRow


def save_plan_page(options: Namespace, tree: Root, kernels: Sequence[tuple[str, Sequence[ResourceRow]]] = ()) -> None:
    """Writes the file of --html, if it is given. kernels: linked kernels' resources and limits."""
    if options.html is None:
        return
    from simgpu.tools.page.page import Page
    from simgpu.tools.page.plans import plan_point, resources_document, roofline_document, tree_document

    claim([options.html], options.force)
    points = [plan_point(tree)] if tree.derivation.feasible else []
    document = {
        "tree": tree_document(tree), "resources": resources_document(kernels),
        "roofline": roofline_document(tree, points),
    }  # fmt: skip
    Page(tree.derivation.title, document, shlex.join(["simgpu", *options.words])).save(options.html, options.force)
