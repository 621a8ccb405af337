"""Random torch.distributions: log probabilities, moments, divergences, transforms, gradients to parameters."""

from tests.fuzz.draw import Draw

# Over p of any real numbers and q of positive ones, each (3, 4).
MAKE = [
    "D.Normal({p}, {q})",
    "D.LogNormal({p}, {q})",
    "D.Laplace({p}, {q})",
    "D.Cauchy({p}, {q})",
    "D.Gumbel({p}, {q})",
    "D.StudentT({q} + 2, {p}, {q})",
    "D.HalfNormal({q})",
    "D.HalfCauchy({q})",
    "D.Exponential({q})",
    "D.Gamma({q}, {q} + 1)",
    "D.Beta({q}, {q} + 1)",
    "D.Dirichlet({q})",
    "D.Chi2({q})",
    "D.FisherSnedecor({q} + 2, {q} + 5)",
    "D.InverseGamma({q} + 2, {q})",
    "D.Uniform({p}, {p} + {q})",
    "D.Pareto({q}, {q} + 2)",
    "D.Weibull({q}, {q} + 1)",
    "D.Kumaraswamy({q}, {q} + 1)",
    "D.VonMises({p}, {q})",
    "D.Bernoulli(logits={p})",
    "D.Bernoulli({p}.sigmoid())",
    "D.Binomial(5, logits={p})",
    "D.Categorical(logits={p})",
    "D.Categorical({q})",
    "D.OneHotCategorical(logits={p})",
    "D.Multinomial(4, {q})",
    "D.Poisson({q})",
    "D.Geometric(logits={p})",
    "D.NegativeBinomial(3, logits={p})",
    "D.ContinuousBernoulli(logits={p})",
    "D.RelaxedBernoulli(torch.tensor(0.5, device=device), logits={p})",
    "D.RelaxedOneHotCategorical(torch.tensor(0.5, device=device), logits={p})",
    "D.MultivariateNormal({p}, torch.diag_embed({q}) + 0.25)",
    "D.MultivariateNormal({p}, scale_tril=torch.diag_embed({q}))",
    "D.LowRankMultivariateNormal({p}, {p}.unsqueeze(-1), {q})",
    "D.Independent(D.Normal({p}, {q}), 1)",
    "D.MixtureSameFamily(D.Categorical(logits={p}), D.Normal({p}, {q}))",
    "D.TransformedDistribution(D.Normal({p}, {q}), [D.TanhTransform()])",
    "D.TransformedDistribution(D.Normal({p}, {q}), [D.AffineTransform(1.0, 2.0), D.SigmoidTransform()])",
    "D.LogisticNormal({p}, {q})",
    "D.Wishart(torch.tensor(5.0, device=device), torch.diag_embed({q}))",
    "D.LKJCholesky(3, {q}[0, 0])",
    "D.GeneralizedPareto({p}, {q}, {q}) if hasattr(D, 'GeneralizedPareto') else D.Normal({p}, {q})",
]
SMALL = "make_index({s}, ({shape}), 0, 2, 'int64').float()"
VALUES = [
    SMALL,
    "({p}.detach() * 0.3 + 0.5).abs().clamp(0.05, 0.95)",
    "{q}.detach() + 3",
    "{q}.detach().softmax(-1)",
    "{p}.detach().argmax(-1)",
    "F.one_hot({p}.detach().argmax(-1), 4).float()",
    "{p}.detach()",
]
USE = [
    "{d}.log_prob({v})",
    "{d}.log_prob({v})",
    "{d}.log_prob({v})",
    "{d}.entropy()",
    "{d}.mean",
    "{d}.variance",
    "{d}.stddev",
    "{d}.mode",
    "{d}.cdf({v})",
    "{d}.icdf(({v}).sigmoid())",
    "{d}.perplexity()",
    "torch.tensor([*{d}.batch_shape, *{d}.event_shape])",
    "{d}.expand((2, 3)).log_prob({v})",
    "{d}.support.check({v})",
    "torch.tensor({d}.sample((2,)).shape)",
    "torch.tensor({d}.rsample().shape)",
    "{d}.support.check({d}.sample()).all()",
    "D.biject_to({d}.support).inv({v})",
    "D.transform_to({d}.support)({p})",
    "D.kl_divergence({d}, {e})",
    "D.kl_divergence({d}, {e})",
    "D.kl_divergence({d}, {d})",
    "{d}.enumerate_support()",
    "{d}.cdf({v}).sum() + {p}",
    "{d}.param_shape",
    "{d}.scale_tril",
    "{d}.probs",
    "{d}.logits",
    "{d}.covariance_matrix",
    "{d}.concentration",
]


def generate(seed: int) -> list[str]:
    """The lines of program `seed`."""
    draw = Draw("distributions", seed)
    grad = draw.maybe(0.5)
    draw.line("import torch.distributions as D")
    draw.line(f"p, q = {draw.tensor((3, 4), grad=grad)} + 0.1, {draw.tensor((3, 4), grad=grad)}.abs() + 0.5")
    for i in range(draw.randint(1, 3)):
        text = draw.choice(MAKE)
        other = text if draw.maybe(0.6) else draw.choice(MAKE)
        draw.line(f"_d{i}, _e{i} = {text.format(p='p', q='q')}, {other.format(p='(p * 0.5)', q='(q + 0.25)')}")
        for j in range(draw.randint(1, 3)):
            value = draw.choice(VALUES).format(p="p", q="q", s=draw.randrange(1 << 30), shape="3, 4")
            draw.line(f"r{i}{j} = {draw.choice(USE).format(d=f'_d{i}', e=f'_e{i}', v=value, p='p')}")
    if grad:
        draw.line("backward()")
    return draw.lines
