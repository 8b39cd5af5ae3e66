"""Published figures next to ours: measured times for `simgpu validate-time`, the paper for `simgpu paper`.

    rows.py     the tables of measurements, read and split
    tile_loop.py  the instructions of a tiled matrix product with known parameters
    tile_kernel.py  the modelled time of such a product
    tensile.py  rocBLAS's kernels, from their names
    measured.py  microbenchmarks, as the model runs them
    own_kernels.py  stencils, norms, transposes and streams, by kernels of ours
    kernels.cl  their source
    judge.py    rows compared with the model, the table of errors
    paper/      the paper's numbers, figures and tests next to ours
    ring/       others' kernels at all configurations, in a ring of elements
    shipped/    AITER's kernels with real arguments, against float64 and in late mode
    aiter.py    AITER's shipped code objects: their arguments and grids
    hipkittens.py  times of AITER's attention, by HipKittens' benchmark
    mgpusim.py  small HIP programs on an MI300A: their kernels, compiled, and their published times
    workloads.py  workloads of PolyBench, SHOC and others on an MI300A: their kernels, compiled, and their published times
    kittens.py  HipKittens' own kernels, compiled, and its published times on MI355X
    babelstream.py  BabelStream's kernels, compiled, and published bandwidths of MI300X and MI300A
    shallow.py  a shallow-water solver on an MI300A: its kernels, compiled, and its tutorial's times
    checkouts.py  text files of others' repositories
    seismic.py  AMD's seismic stencils: their kernels, compiled, and their published bandwidths
    laplacian.py  AMD's Laplacian: its kernels, compiled, and its tutorial's times and bytes
    tuned.py    AITER's tables of tuned products through their git history
    choices.py  the model's choice among AITER's kernels against the measured one
    repairs.py  lint's findings in a repository's code objects: before and after repairs, and today
    reports.py  a report of one code object, for its maintainers
    rocm.py     test clients of ROCm's libraries and of ggml, run and counted
    llama.py    llama.cpp's text on the simulated GPU and on the host
"""
