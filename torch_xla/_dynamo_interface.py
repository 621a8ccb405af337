"""torch.compile's interface of the device, besides the module `torch.xla`."""

import torch
from torch._dynamo.device_interface import DeviceInterface

from . import _device_module


class XlaInterface(DeviceInterface):
    """Devices, streams and events of `xla`, by the names of torch.compile's other devices."""

    device = _device_module.device
    Event = _device_module.Event
    Stream = _device_module.Stream

    class Worker:
        """The interface for compile worker processes. Raises the module's errors."""

        set_device = staticmethod(_device_module.set_device)
        current_device = staticmethod(_device_module.current_device)
        get_device_properties = staticmethod(_device_module.get_device_properties)

    current_device = staticmethod(_device_module.current_device)
    set_device = staticmethod(_device_module.set_device)
    exchange_device = staticmethod(torch._C._accelerator_exchangeDevice)
    maybe_exchange_device = staticmethod(torch._C._accelerator_maybeExchangeDevice)
    device_count = staticmethod(_device_module.device_count)
    is_available = staticmethod(_device_module.is_available)
    stream = staticmethod(_device_module.stream)
    current_stream = staticmethod(_device_module.current_stream)
    set_stream = staticmethod(_device_module.set_stream)
    synchronize = staticmethod(_device_module.synchronize)
    is_bf16_supported = staticmethod(_device_module.is_bf16_supported)
    memory_allocated = staticmethod(_device_module.memory_allocated)

    @staticmethod
    def _set_stream_by_id(stream_id: int, device_index: int, device_type: int) -> None:
        stream = torch.Stream(stream_id=stream_id, device_index=device_index, device_type=device_type)
        _device_module.set_stream(stream)

    @staticmethod
    def get_compute_capability(device=None) -> str:
        """No number: programs are the same for all devices of a process."""
        return ""
