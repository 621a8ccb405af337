"""Runs of several processes: xmp.spawn, collectives, training, and what is told when a process is lost."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import replicas
import replicas_lost
import replicas_training
import sharded
import torch
import torch.distributed.checkpoint as dcp
from replica_pool import spawn
from torch.multiprocessing import ProcessRaisedException

import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.xla_multiprocessing as xmp
import torch_xla.runtime as xr
from torch_xla._internal import pjrt

HERE = Path(__file__).parent


def check_trained(parameters: list, model=None, rtol: float = 1e-5, atol: float = 1e-5) -> None:
    """All replicas have the same parameters, and those of the model."""
    for other in parameters[1:]:
        assert all(torch.equal(a, b) for a, b in zip(parameters[0], other))
    for actual, expected in zip(parameters[0], model.parameters() if model else ()):
        torch.testing.assert_close(actual, expected.detach(), rtol=rtol, atol=atol)


@pytest.mark.parametrize("size", [2, 4])
def test_collectives(pool, size):
    pool(replicas.collectives, size, size=size)


def test_gradients_of_collectives(pool):
    pool(replicas.gradients)


def test_batch_norm_over_replicas(pool):
    pool(replicas_training.batch_norm)


def test_a_result_that_one_replica_keeps(pool):
    pool(replicas.unwanted_result)


def test_results_that_one_replica_reads(tmp_path):
    spawn(replicas_lost.read_by_one, (str(tmp_path / "read"),))


@pytest.mark.parametrize("size", [2, 4])
def test_half_batches_train_as_a_whole_one(pool, size, tmp_path):
    pool(replicas_training.half_batches, str(tmp_path / "p"), size=size)
    model = replicas_training.make_model()
    for steps in (3, 5):
        replicas_training.train(model, replicas_training.batch_of, steps)
    check_trained([torch.load(tmp_path / f"p.{rank}") for rank in range(size)], model)


def test_sums_of_gradients_start_during_the_backward(tmp_path, monkeypatch):
    path = str(tmp_path / "steps")
    monkeypatch.setenv("XLA_DEBUG", "3")
    monkeypatch.setenv("XLA_DEBUG_FILE", path)
    spawn(replicas_training.starts_early, (path,))


def test_a_loader_in_each_process(pool, tmp_path):
    pool(replicas_training.loader, str(tmp_path / "p"))
    check_trained([torch.load(tmp_path / f"p.{rank}") for rank in range(2)])


def test_the_error_of_a_process():
    with pytest.raises(ProcessRaisedException, match="the replica's own error") as raised:
        xmp.spawn(replicas_lost.fails, nprocs=2)
    assert "in fails" in str(raised.value)


def test_a_process_that_raises_waits_for_nobody(tmp_path, monkeypatch):
    monkeypatch.setenv("XLA_COLLECTIVE_TIMEOUT", "600")
    with pytest.raises(ProcessRaisedException, match="the replica's own error"):
        spawn(replicas_lost.fails_while_it_runs, (str(tmp_path / "when"),))
    assert time.monotonic() - float((tmp_path / "when").read_text()) < 45  # what its program waits for never comes


def test_a_fork_after_the_device_was_used(device):
    torch.ones(2, device=device).cpu()
    with pytest.raises(RuntimeError, match=r"call spawn\(start_method='spawn'\)"):
        xmp.spawn(replicas_lost.fails, nprocs=2, start_method="fork")


@pytest.mark.parametrize("nprocs", [0, -1])
def test_a_number_of_processes_that_does_not_fit(nprocs):
    with pytest.raises(ValueError, match=f"nprocs={nprocs} when it should be at least 1"):
        xmp.spawn(replicas_lost.fails, nprocs=nprocs)


def test_processes_by_fork_and_by_number_of_devices(run_python):
    out = run_python(
        """
        import torch, torch_xla
        import torch_xla.core.xla_model as xm
        import torch_xla.runtime as xr
        import torch_xla.distributed.xla_multiprocessing as xmp
        def f(index):
            total = xm.all_reduce("sum", torch.full((2,), index + 1.0, device=xm.xla_device()))
            xm.master_print(total.tolist(), xr.world_size(), torch_xla.device_count(), flush=True)
            xm.rendezvous("printed")
        xmp.spawn(f, start_method="fork")
        context = xmp.spawn(f, nprocs=2, join=False, start_method="fork")
        while not context.join():
            pass
        """,
        CPU_NUM_DEVICES="2",
    )
    assert out == "[3.0, 3.0] 2 1\n" * 2


def test_processes_by_fork_after_work_on_the_cpu(run_python):
    out = run_python("""
        import torch, torch_xla
        import torch_xla.core.xla_model as xm
        import torch_xla.distributed.xla_multiprocessing as xmp
        torch.set_num_threads(2)
        model = xmp.MpModelWrapper(torch.nn.Linear(300, 400))  # its copy to shared memory takes a team of threads
        def f(index):
            torch.set_num_threads(2)
            value = model.to(xm.xla_device())(torch.ones(1, 300).to("xla")).sum().isfinite()
            torch_xla.sync()
            print(value.item(), torch.ones(10**6).mul(2).mean().item(), flush=True)
        xmp.spawn(f, nprocs=2, start_method="fork")
    """)
    assert out == "True 2.0\n" * 2


def test_torchrun(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import sys, torch, torch_xla, torch_xla.core.xla_model as xm, torch_xla.runtime as xr\n"
        "import torch_xla.distributed.xla_multiprocessing as xmp\n"
        "def f(index):\n"
        "    assert xm.mesh_reduce('numbers', {'index': index, 'one': torch.ones(1)}, len) == 2\n"
        "    try:\n"
        "        xm.mesh_reduce('code', f, len)\n"
        "    except RuntimeError as error:\n"
        "        assert 'whose reading may run code' in str(error)\n"
        "    else:\n"
        "        raise AssertionError('without a secret')\n"
        "    total = xm.all_reduce('sum', torch.ones(1, device='xla') * (index + 1)).item()\n"
        "    open(f'{sys.argv[1]}.{index}', 'w').write(f'{xr.local_ordinal()} {xr.world_size()} {total}')\n"
        "xmp.spawn(f)\n"
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--rdzv-backend=c10d"]
    command += ["--rdzv-endpoint=localhost:0", str(program), str(tmp_path / "said")]
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert [(tmp_path / f"said.{index}").read_text() for index in range(2)] == ["0 2 3.0", "1 2 3.0"]


def hold(rank: int, path: str, work, *args) -> None:
    """Does the work with a file open, which processes that this one starts have open too."""
    os.set_inheritable(os.open(path, os.O_CREAT), True)
    work(rank, *args)


def holders_of(path: Path) -> set[int]:
    """The processes that have the file open."""
    found = set()
    for descriptor in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile, or is another user's
            if os.readlink(descriptor) == str(path):
                found.add(int(descriptor.parts[2]))
    return found


def end_one(work, how: signal.Signals, path: Path, monkeypatch, timeout: int = 12) -> list[str]:
    """Sends a signal to the third of four replicas in the middle of `work`; returns what the others were told.

    They have ended, and no process or shared memory of the run is left.
    """
    monkeypatch.setenv("XLA_COLLECTIVE_TIMEOUT", str(timeout))
    held = path.with_name("held")
    context = spawn(hold, (str(held), work, str(path)), 4, join=False)
    processes = [*context.processes]
    end = time.monotonic() + 180
    while len(list(path.parent.glob("*.running"))) < 4 and time.monotonic() < end:
        time.sleep(0.05)
    lost = processes.pop(2)
    assert holders_of(held) == set(context.pids())
    os.kill(lost.pid, how)
    for process in processes:
        process.join(120)
    exitcodes = [process.exitcode for process in processes]
    lost.kill()
    lost.join()
    assert set(exitcodes) <= {0, 1}  # 1 where a program failed whose results nobody waited for
    assert not holders_of(held)
    of_the_run = tuple(f"torch_{pid}_" for pid in context.pids())  # torch's shared memory; other names are random
    assert not [name for name in os.listdir("/dev/shm") if name.startswith(of_the_run)]
    return [Path(f"{path}.{rank}").read_text() for rank in (0, 1, 3)]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_lost_process_is_named(how, tmp_path, monkeypatch):
    told = end_one(replicas_lost.stops_coming, how, tmp_path / "said", monkeypatch)
    assert all("replica 2 has ended or does not answer" in text for text in told), told


@pytest.mark.parametrize("work", [replicas_lost.sends_for_ever, replicas_lost.sends_alone])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_lost_process_that_is_sent_to_is_named(work, how, tmp_path, monkeypatch):
    told = end_one(work, how, tmp_path / "said", monkeypatch)
    assert all("replica 2 has ended or does not answer" in text for text in told), told


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_process_lost_in_sharded_training_is_named(how, tmp_path, monkeypatch):
    told = end_one(sharded.trains_for_ever, how, tmp_path / "said", monkeypatch)
    assert all("replica 2 has ended or does not answer" in text for text in told), told
    expected, loaded = sharded.Net(), {"model": sharded.Net().state_dict()}
    sharded.train(expected, sharded.adam(expected.parameters()), sharded.batch_of, range(1))
    dcp.load(loaded, checkpoint_id=str(tmp_path / "said.saved.0"))
    for name, parameter in expected.state_dict().items():
        torch.testing.assert_close(loaded["model"][name], parameter, rtol=1e-5, atol=1e-5)


def test_a_process_lost_in_a_meeting_is_named(tmp_path, monkeypatch):
    """Long before the timeout. It takes ten heartbeats to be sure."""
    told = end_one(replicas_lost.meets_for_ever, signal.SIGKILL, tmp_path / "said", monkeypatch, timeout=150)
    assert all("replica 2 has ended or does not answer; replicas [2" in text for text in told), told


def test_a_process_that_has_ended_is_waited_for_nowhere(tmp_path):
    spawn(replicas_lost.is_left_alone, (str(tmp_path / "told"),))
    told = (tmp_path / "told").read_text().splitlines()
    places = ["the meeting 'never'"] * 2 + ["the making of the group [0, 1]"] * 3
    assert told == [f"replica 1 has ended or does not answer; replicas [1] did not come to {place}" for place in places]


def test_calls_that_differ(pool):
    pool(replicas_lost.differing_calls)


def test_a_run_of_one_machine_listens_to_itself(pool):
    pool(replicas.listens)


def test_values_of_meetings(pool, tmp_path):
    pool(replicas.values_of_meetings, str(tmp_path / "noted"))


def test_ctrl_c_ends_all(tmp_path):
    program = (
        f"import signal, sys; sys.path.insert(0, {str(HERE)!r})\n"
        "import replicas_lost, torch_xla.distributed.xla_multiprocessing as xmp\n"
        "if __name__ == '__main__':\n"
        "    signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background job ignores\n"
        f"    xmp.spawn(replicas_lost.stops_coming, ({str(tmp_path / 'said')!r},), 2)\n"
    )
    (tmp_path / "program.py").write_text(program)
    process = subprocess.Popen([sys.executable, str(tmp_path / "program.py")], stderr=subprocess.PIPE, text=True)
    limit = threading.Timer(200, process.kill)
    limit.start()
    while len(list(tmp_path.glob("*.running"))) < 2 and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate()
    limit.cancel()
    assert process.returncode != 0 and "KeyboardInterrupt" in errors


# ---- What processes share ----
def test_model_wrapper(device):
    model = torch.nn.Linear(2, 2)
    assert xmp.MpModelWrapper(model).to(device).weight.device == device
    assert xmp.MpSerialExecutor().run(lambda: 5) == 5


def test_spawn_of_one_process():
    seen: list = []
    xmp.spawn(lambda index, value: seen.append((index, value)), args=(3,))
    xmp.spawn(seen.append, nprocs=1, start_method="fork")
    torch_xla.launch(lambda index, value: seen.append((index, value)), args=(4,))
    assert seen == [(0, 3), 0, (0, 4)]
    with pytest.raises(KeyError):
        xmp.spawn(lambda index: {}[index])


# ---- torch.distributed ----
@pytest.mark.parametrize("size", [2, 4])
def test_sends_do_not_wait_for_receives(pool, size):
    pool(replicas.passes_on, size, size=size)


def test_what_was_sent_arrives_when_its_process_ends(tmp_path):
    spawn(replicas_lost.sends_and_ends, (str(tmp_path / "received"),))
    assert (tmp_path / "received").exists()


def test_starting_processes_as_the_original(monkeypatch):
    monkeypatch.setenv("CPU_NUM_DEVICES", "2")
    assert pjrt.run_multiprocess(xr.global_ordinal) == {0: 0, 1: 1}
    assert pjrt.run_multiprocess(xm.rendezvous, "tag", payload=b"x") == {0: [b"x"] * 2, 1: [b"x"] * 2}
    with pytest.raises(ValueError, match="reduction 'avg' is not known") as raised:  # what the process raised
        pjrt.run_multiprocess(xm.all_reduce, "avg", 1)
    assert isinstance(raised.value.__cause__, ProcessRaisedException)
    with pytest.raises(ProcessRaisedException, match="Unpicklable"):
        pjrt.run_multiprocess(replicas_lost.raises_what_cannot_be_pickled)
    pjrt.spawn(replicas.torch_distributed)
    seen: list = []
    pjrt.spawn(lambda index, value: seen.append((index, value)), 1, args=(3,))
    assert seen == [(0, 3)]


def test_results_of_replicas_are_merged():
    assert pjrt._merge_replica_results([(1, "b"), (0, "a")]) == {1: "b", 0: "a"}
    with pytest.raises(AssertionError, match=r"more than one result of the replicas \[1\]"):
        pjrt._merge_replica_results([(1, "b"), (0, "a"), (1, "c")])


def test_a_product_with_a_spread_side(pool):
    pool(replicas.multiplies)


def test_default_groups_one_after_the_other(pool):
    pool(replicas.joins_again)


def test_torch_distributed(pool):
    pool(replicas.torch_distributed)


@pytest.mark.parametrize("compile", [False, True])
def test_distributed_data_parallel(pool, tmp_path, compile):
    pool(replicas_training.distributed_data_parallel, str(tmp_path / "p"), compile)
    model = replicas_training.make_model()
    replicas_training.train(model, replicas_training.batch_of, 4)
    check_trained([torch.load(tmp_path / f"p.{rank}") for rank in range(2)], model)


def test_data_parallel_steps_are_one_program_also_where_buckets_are_rebuilt(pool, tmp_path):
    pool(replicas_training.rebuilds_buckets, str(tmp_path / "p"))
    model = replicas_training.make_model()
    replicas_training.train(model, lambda step: replicas_training.batch_of(min(step, 3)), 5)
    check_trained([torch.load(tmp_path / f"p.{rank}") for rank in range(2)], model)


@pytest.mark.parametrize("name, max_norm", [("ours", None), ("clipped", 0.1), ("torch", None)])
def test_optimizers_with_spread_state(name, max_norm, zero_redundancy):
    model = replicas_training.make_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(4):
        replicas_training.compute_gradients(model, optimizer, *replicas_training.batch_of(step))
        if max_norm:
            torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        optimizer.step()
    check_trained([trained[name] for trained in zero_redundancy], model, rtol=1e-3, atol=1e-4)


@pytest.fixture(scope="module")
def spread_state(pool, tmp_path_factory):
    """What each replica trained."""
    path = tmp_path_factory.mktemp("spread") / "p"
    pool(replicas_training.spread_state, str(path))
    return [torch.load(f"{path}.{rank}") for rank in range(2)]


@pytest.mark.parametrize("name", [*replicas_training.SPREAD, "loaded"])
def test_options_of_the_optimizer_with_spread_state(name, spread_state):
    model = replicas_training.odd_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05, weight_decay=0.1)
    if name in ("clipped", "loaded"):

        def clip(*_):
            norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None])
            torch.nn.utils.clip_grads_with_norm_(model.parameters(), 0.05, norm)

        optimizer.register_step_pre_hook(clip)
    replicas_training.train_odd(model, optimizer, 3)
    check_trained([trained[name] for trained in spread_state], model, rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def zero_redundancy(pool, tmp_path_factory):
    """What each replica trained."""
    path = tmp_path_factory.mktemp("zero") / "p"
    pool(replicas_training.zero_redundancy, str(path))
    return [torch.load(f"{path}.{rank}") for rank in range(2)]
