"""Writes the files of a checkpoint beside those of an older one of the same step, which stays complete."""

import dataclasses
import queue
import threading

from torch.distributed.checkpoint._fsspec_filesystem import FsspecWriter
from torch.distributed.checkpoint.filesystem import _StoragePrefix, _write_files_from_queue
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

METADATA = ".metadata"  # names the files of the valid checkpoint


class StepWriter(FsspecWriter):
    """Its file names, also of the metadata, have `save_id`, chosen by the first process.

    Args:
        path: the folder of the step, a directory or a URL.
        num_of_threads: the number of writing threads, a file each.
    """

    def __init__(self, path: str, num_of_threads: int):
        super().__init__(path, thread_count=num_of_threads)

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        return [
            dataclasses.replace(plan, storage_data=_StoragePrefix(f"__{self.save_id}_{rank}_"))
            for rank, plan in enumerate(plans)
        ]

    def _get_metadata_path(self, rank: int | None = None) -> str:
        return f"{self.path}/{METADATA}.{self.save_id}"

    def _write_data(self, planner: SavePlanner, file_queue: queue.Queue) -> Future[list[WriteResult]]:
        """As in the base class, which misses the failure of one of its threads."""
        results: queue.Queue = queue.Queue()
        errors: list[BaseException] = []

        def write() -> None:
            try:
                _write_files_from_queue(
                    create_stream=self.fs.create_stream,
                    file_queue=file_queue,
                    result_queue=results,
                    planner=planner,
                    transforms=self.transforms,
                    inflight_threshhold=self.per_thread_copy_ahead,
                    use_fsync=self.sync_files,
                    thread_count=self.thread_count,
                    serialization_format=self.serialization_format,
                )
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=write) for _ in range(1, self.thread_count)]
        for thread in threads:
            thread.start()
        write()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
        future: Future[list[WriteResult]] = Future()
        future.set_result([result for some in results.queue for result in some])
        return future
