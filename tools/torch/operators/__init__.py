"""PyTorch's operators where the pretended GPU differs from the CPU.

    registered.py    an operator's kernel there, libraries' too, and the GPU that it runs on
    accumulation.py  operators on 16-bit types that a GPU computes in f32
    products.py      products of 16-bit matrices, as the matrix units sum them
    on_gpus.py       operators that only GPUs have
    norms.py         parts of norms among them
    attention.py     operators of attention
    choices.py       choices of GPUs among equal elements
    simulated.py     SIMGPU_OPERATORS=simulated: operators by simgpu's own kernels, counted
    kernels.py       these kernels: emitted once a problem, launched on operands
    decompositions.py  operators by simpler ones: PyTorch's decompositions, each of a list
    compositions.py  those that PyTorch has no decomposition of
    grids.py         grid_sample and its gradients among them
    ctc.py           ctc_loss and its gradient among them
    gemms.py         matrix products
    convolutions.py  convolutions and their gradients
    rows.py          softmaxes, norms and their gradients
    row_forms.py     forms on rows that only autograd needs
    channel_norms.py  batch and group norms
    elements.py      element-wise operators of floats, on lists too
    element_forms.py  their expressions
    compiled.py      compiles Triton's kernels of this package
    functions.py     comparisons, logic, integers, special functions
    element_sources.py  their kernels
    activations.py   activations with branches or parameters
    activation_sources.py  their kernel
    along_axes.py    extremes, sums, order, moments, norms
    indexing.py      embedding, gather, scatter, index
    pooling.py       windows of one to three axes
    interpolation.py  linear and cubic interpolation
    losses.py        likelihoods and squared errors
    index_sources.py  kernels of the last five
    draws.py         random numbers
    draw_sources.py  their kernel
    summary.py       calls simulated and on the host, as text
"""
