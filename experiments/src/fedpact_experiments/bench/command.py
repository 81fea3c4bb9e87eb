"""`fedpact bench`: this file only registers; each command has a file of its own."""

from __future__ import annotations

import click

from fedpact_experiments.bench.attacks import attacks
from fedpact_experiments.bench.calibration import calibration
from fedpact_experiments.bench.constrained_network import constrained_network
from fedpact_experiments.bench.decisions import decisions
from fedpact_experiments.bench.designs import designs
from fedpact_experiments.bench.engines import engines
from fedpact_experiments.bench.generated import generated
from fedpact_experiments.bench.growth import growth
from fedpact_experiments.bench.house import house
from fedpact_experiments.bench.inference import inference
from fedpact_experiments.bench.jobs import jobs
from fedpact_experiments.bench.local import local
from fedpact_experiments.bench.networks import networks
from fedpact_experiments.bench.newcomer import newcomer
from fedpact_experiments.bench.neyman_pearson import neyman_pearson
from fedpact_experiments.bench.outside import outside
from fedpact_experiments.bench.owners import owners
from fedpact_experiments.bench.participation import participation
from fedpact_experiments.bench.parties import parties
from fedpact_experiments.bench.people import people
from fedpact_experiments.bench.promises import promises
from fedpact_experiments.bench.rounds import rounds
from fedpact_experiments.bench.seconds import seconds
from fedpact_experiments.bench.slow_party import slow_party
from fedpact_experiments.bench.speed import speed
from fedpact_experiments.bench.startup import startup
from fedpact_experiments.bench.unconstrained import unconstrained
from fedpact_experiments.bench.vertical import vertical
from fedpact_experiments.bench.wire import wire


@click.group()
def bench() -> None:
    """Measure the methods side by side; every number printed comes from that run.

    \b
    fedpact bench rounds --problems synthetic --owners 5     exchanges with the owners, against the paper's algorithm
    fedpact bench time                                       seconds, against centralized solvers on pooled data
    fedpact bench speed                                      interior-point beside its arithmetic, IPOPT and SLSQP
    fedpact bench growth                                     exchanges, bytes and seconds for more owners and columns
    fedpact bench generated                                  generated problems of every kind, beside a conic solver
    fedpact bench outside                                    suites that others wrote: CVXPY, CUTEst, Maros-Meszaros
    fedpact bench unconstrained                              beside scikit-learn and Flower's simulation
    fedpact bench local                                      what the owners compute, tuned and untuned
    fedpact bench participation                              rounds that ask a sample of the owners
    fedpact bench constrained-network                        what owners evaluate for a constrained network
    fedpact bench neyman-pearson                             the paper's two algorithms beside the optimum
    fedpact bench calibration                                probabilities from scores, two ways, by sums
    fedpact bench decisions                                  recall and gaps at every owner, beside fairlearn
    fedpact bench networks                                   networks under counted bounds at every owner
    fedpact bench designs                                    what may stand inside a stochastic method for networks
    fedpact bench inference                                  how often 95 % intervals hold, with constraints
    fedpact bench promises                                   promises about rows not yet seen, simulated
    fedpact bench vertical                                   parties that hold columns: all methods, what they reveal
    fedpact bench parties                                    a vertical job from files, for more people
    fedpact bench people                                     vertical methods with more and more people
    fedpact bench attacks                                    what a dishonest coordinator gets out of sites
    fedpact bench engines                                    what an exchange costs in process, on Ray and on Flower
    fedpact bench wire                                       bytes of an exchange, and the time to write and read them
    fedpact bench jobs                                       whole jobs on large files: CPU seconds and memory
    fedpact bench slow-party                                 steps of the server where one vertical party is slow
    fedpact bench house                                      how the code reads, beside other projects of the field

    Tables go to standard output, progress to standard error. Ctrl-C prints what was measured so far. Set
    OMP_NUM_THREADS=1 for times that can be compared.
    """


for command in (
    rounds,
    seconds,
    speed,
    unconstrained,
    growth,
    generated,
    outside,
    local,
    participation,
    constrained_network,
    neyman_pearson,
    calibration,
    decisions,
    inference,
    networks,
    designs,
    promises,
    vertical,
    parties,
    people,
    attacks,
    engines,
    wire,
    jobs,
    owners,
    slow_party,
    startup,
    newcomer,
    house,
):
    bench.add_command(command)
