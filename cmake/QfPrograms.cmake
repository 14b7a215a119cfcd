# The programs: qf (quantize, judge, run, ...) and qf-bench (kernels, checked before they are timed).
