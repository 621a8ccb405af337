"""Linear algebra without a result raises where it is called: programs catch the error and take another way."""

import pytest
import torch

import torch_xla

pytestmark = pytest.mark.checks_values
N = 4


def _good() -> torch.Tensor:
    a = torch.arange(float(N * N)).reshape(N, N).sin()
    return a @ a.mT + 2 * torch.eye(N)


def _with(value: float) -> torch.Tensor:
    a = _good()
    a[1, 2] = a[2, 1] = value
    return a


MATRICES = {
    "good": _good(),
    "nan": _with(float("nan")),
    "inf": _with(float("inf")),
    "all_nan": torch.full((N, N), float("nan")),
    "zero": torch.zeros(N, N),
    "rank_one": torch.ones(N, N),
    "not_positive": -_good(),
    "one_of_a_batch": torch.stack([_good(), _with(float("nan")), torch.zeros(N, N)]),
    "wide": torch.full((N, N + 2), float("nan")),
}
LA = torch.linalg


def _vector(a: torch.Tensor) -> torch.Tensor:
    return torch.ones(*a.shape[:-1], 1, device=a.device, dtype=a.dtype)


# By name: what is called of the matrix. All of torch.linalg that takes matrices, and its older names.
CALLS = {
    "cholesky": LA.cholesky,
    "cholesky_ex": LA.cholesky_ex,
    "cholesky_ex_checked": lambda a: LA.cholesky_ex(a, check_errors=True),
    "inv": LA.inv,
    "inv_ex": LA.inv_ex,
    "inv_ex_checked": lambda a: LA.inv_ex(a, check_errors=True),
    "solve": lambda a: LA.solve(a, _vector(a)),
    "solve_ex": lambda a: LA.solve_ex(a, _vector(a)),
    "solve_ex_checked": lambda a: LA.solve_ex(a, _vector(a), check_errors=True),
    "solve_triangular": lambda a: LA.solve_triangular(a, _vector(a), upper=True),
    "tensorinv": lambda a: LA.tensorinv(a.reshape(2, 2, -1), ind=2),
    "tensorsolve": lambda a: LA.tensorsolve(a, torch.ones(N, device=a.device)),
    "lu": LA.lu,
    "lu_factor": LA.lu_factor,
    "lu_factor_ex": LA.lu_factor_ex,
    "lu_factor_ex_checked": lambda a: LA.lu_factor_ex(a, check_errors=True),
    "lu_solve": lambda a: LA.lu_solve(*LA.lu_factor(a), _vector(a)),
    "ldl_factor": LA.ldl_factor,
    "ldl_factor_ex": LA.ldl_factor_ex,
    "ldl_factor_ex_checked": lambda a: LA.ldl_factor_ex(a, check_errors=True),
    "ldl_solve": lambda a: LA.ldl_solve(*LA.ldl_factor(a), _vector(a)),
    "qr": LA.qr,
    "det": LA.det,
    "slogdet": LA.slogdet,
    "svd": LA.svd,
    "svd_thin": lambda a: LA.svd(a, full_matrices=False),
    "svdvals": LA.svdvals,
    "eigh": LA.eigh,
    "eigh_upper": lambda a: LA.eigh(a, UPLO="U"),
    "eigvalsh": LA.eigvalsh,
    "eig": LA.eig,
    "eigvals": LA.eigvals,
    "pinv": LA.pinv,
    "pinv_hermitian": lambda a: LA.pinv(a, hermitian=True),
    "matrix_rank": LA.matrix_rank,
    "matrix_rank_hermitian": lambda a: LA.matrix_rank(a, hermitian=True),
    "cond": LA.cond,
    "cond_nuc": lambda a: LA.cond(a, "nuc"),
    "matrix_norm_2": lambda a: LA.matrix_norm(a, 2),
    "matrix_norm_minus_2": lambda a: LA.matrix_norm(a, -2),
    "matrix_norm_nuc": lambda a: LA.matrix_norm(a, "nuc"),
    "matrix_norm": LA.matrix_norm,
    "norm_2": lambda a: LA.norm(a, 2),
    "norm_nuc": lambda a: LA.norm(a, "nuc"),
    "matrix_power": lambda a: LA.matrix_power(a, -2),
    "matrix_exp": LA.matrix_exp,
    "lstsq": lambda a: LA.lstsq(a, _vector(a))[0].new_zeros(()),  # of infinite numbers its values are any
    "lstsq_gels": lambda a: LA.lstsq(a, _vector(a), driver="gels"),
    "lstsq_gelsd": lambda a: LA.lstsq(a, _vector(a), driver="gelsd"),
    "lstsq_gelss": lambda a: LA.lstsq(a, _vector(a), driver="gelss"),
    "old_svd": torch.svd,
    "old_cholesky": torch.cholesky,
    "old_cholesky_inverse": torch.cholesky_inverse,
    "old_cholesky_solve": lambda a: torch.cholesky_solve(_vector(a), a),
    "old_inverse": torch.inverse,
    "old_pinverse": torch.pinverse,
    "old_norm_nuc": lambda a: torch.norm(a, "nuc"),
    "old_lu": lambda a: torch.lu_unpack(*torch.linalg.lu_factor(a)),
    "old_qr": torch.qr,
    "old_logdet": torch.logdet,
    "old_matrix_power": lambda a: torch.matrix_power(a, -1),
    "old_geqrf": torch.geqrf,
    "old_triangular_solve": lambda a: torch.triangular_solve(_vector(a), a),
    "complex_svd": lambda a: LA.svd(a.to(torch.complex64)),
    "complex_eigh": lambda a: LA.eigh(a.to(torch.complex64)),
    "complex_eig": lambda a: LA.eig(a.to(torch.complex64)),
    "complex_inv": lambda a: LA.inv(a.to(torch.complex64)),
    "svd_lowrank": lambda a: torch.svd_lowrank(a, q=2)[1] * 0,
    "pca_lowrank": lambda a: torch.pca_lowrank(a, q=2)[1] * 0,
}


def _outcome(call, a: torch.Tensor):
    """The class of the error that the call raises, or its results, which are read afterwards."""
    try:
        results = call(a)
    except Exception as error:
        return type(error), None
    results = (results,) if isinstance(results, torch.Tensor) else tuple(results)
    return None, [r.cpu() for r in results]


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.filterwarnings("ignore:torch\\.")
@pytest.mark.filterwarnings("ignore:.*out of bounds")
def test_a_call_raises_at_once_what_it_raises_in_eager(device, name):
    for kind, matrix in MATRICES.items():
        # PyTorch's eigvals ends the process where eig raises.
        eager = LA.eig if name == "eigvals" and not matrix.isfinite().all() else CALLS[name]
        error, values = _outcome(eager, matrix)
        now, found = _outcome(CALLS[name], matrix.to(device))
        assert now is error, f"{kind}: {now} when eager raises {error}"
        for a, b in zip(found or (), values or (), strict=True):
            torch.testing.assert_close(a, b, equal_nan=True, msg=lambda m, kind=kind: f"{kind}: {m}")
    torch_xla.sync(wait=True)  # nothing is left to be told


def test_another_way_is_taken_after_the_error(device):
    total = torch.zeros(3, device=device)
    for value in (float("nan"), 1.0):
        total += 1
        a = torch.full((3, 3), value, device=device)
        try:
            s = torch.linalg.svd(a)[1]
        except torch.linalg.LinAlgError as error:
            assert "linalg.svd" in str(error)
            s = torch.linalg.svd(torch.eye(3, device=device))[1]
        total += s
    assert total[0].item() == pytest.approx(6.0)


def test_out_and_gradients_raise_at_the_call_too(device):
    a = torch.full((3, 3), float("nan"), device=device)
    out = torch.ones(3, device=device)
    with pytest.raises(torch.linalg.LinAlgError):
        torch.linalg.svdvals(a, out=out)
    with pytest.raises(torch.linalg.LinAlgError):
        torch.linalg.eigh(a.requires_grad_())
    x = torch.eye(3, device=device, requires_grad=True)
    torch.linalg.svdvals(x).sum().backward()
    torch.testing.assert_close(x.grad.cpu(), torch.eye(3))


# ---- Where nothing may run before the end the error comes with the first read, as others do ----
def test_what_is_one_program_stays_so(device):
    @torch_xla.compile(full_graph=True)
    def step(a):
        return torch.linalg.eigh(a)[0] + 1

    assert step(torch.eye(3, device=device)).tolist() == [2, 2, 2]
    with pytest.raises(torch.linalg.LinAlgError):
        step(torch.full((3, 3), float("nan"), device=device)).tolist()
    with pytest.raises(torch.linalg.LinAlgError):  # what is recorded behind it raises at the call again
        torch.linalg.eigh(torch.full((3, 3), float("nan"), device=device))


def test_a_step_that_is_replayed_decomposes(device):
    step = torch_xla.compile(lambda a: torch.linalg.eigh(a)[0] + 1, replay=True)
    for _ in range(4):
        assert step(torch.eye(3, device=device)).tolist() == [2, 2, 2]
    with pytest.raises(torch.linalg.LinAlgError):
        step(torch.full((3, 3), float("nan"), device=device)).tolist()
    assert step(torch.eye(3, device=device)).tolist() == [2, 2, 2]


@pytest.mark.parametrize(
    "call", [torch.linalg.eigvalsh, torch.linalg.cholesky, lambda a: a.add_(torch.linalg.svdvals(a))]
)
def test_a_compiled_function_raises_at_its_call(device, call):
    step = torch.compile(call)
    step(torch.eye(3, device=device))
    with pytest.raises(torch.linalg.LinAlgError):
        step(torch.full((3, 3), float("nan"), device=device))
    step(torch.eye(3, device=device))
