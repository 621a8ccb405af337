"""Inductor's classes for the device `xla`: they raise an error that names other backends."""

from torch._inductor.codegen.common import DeviceOpOverrides, register_device_op_overrides
from torch._inductor.codegen.wrapper import PythonWrapperCodegen as _PythonWrapperCodegen
from torch._inductor.scheduler import BaseScheduling

_MESSAGE = (
    'torch.compile\'s backend "inductor" does not generate code for the device xla: use '
    'torch.compile(..., backend="aot_eager") or "openxla", or leave torch.compile away, '
    "because what runs on xla is compiled as a whole without it"
)


class Scheduling(BaseScheduling):
    """Inductor's question for the features of the device's kernels. Raises NotImplementedError."""

    def __init__(self, scheduler):
        raise NotImplementedError(_MESSAGE)


class PythonWrapperCodegen(_PythonWrapperCodegen):
    """Inductor's question for the code around kernels. Raises NotImplementedError."""

    @staticmethod
    def create(*args, **kwargs):
        """Raises NotImplementedError."""
        raise NotImplementedError(_MESSAGE)


CppWrapperCodegen = WrapperFxCodegen = PythonWrapperCodegen
register_device_op_overrides("xla", DeviceOpOverrides())
