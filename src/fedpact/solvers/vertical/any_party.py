"""Fair VFL where the coordinator steps whenever any party has answered, with the last scores of the others.

Not a form of the paper, whose server hears every party before it goes on (Algorithm 2, line 4): here one order is under
way at each party all the time, and a slow one holds up nobody. Steps are no longer than scale = 1 allows, since the
others have moved on before one could be taken back.
"""

from __future__ import annotations

from fedpact.solvers.run import Iterate, Run
from fedpact.solvers.vertical.descent import Descent
from fedpact.solvers.vertical.fair_vfl_party import Updated, update

#: The smallest scale of the learned eta: steps cannot be taken back.
LEAST = 1.0


def take_step(run: Run, state: Descent, reserve: int) -> Iterate:
    """One step of the coordinator; reserve: exchanges kept back for the end."""
    # 1. everybody who is free gets an order; the coordinator goes on with the first who answer
    z = state.z
    for owner in run.owners:
        if owner not in state.waiting:
            state.waiting[owner] = run.session.submit(owner, update, state.order(owner, z))
    net = state.net
    before = state.lagrangian(net)
    replies = receive(run, state)
    own_order = state.order(state.share.name, z)
    mine = state.update(own_order)
    state.learn_where(state.share.name, mine, own_order)
    state.slopes[state.share.name] = mine.stationarity
    state.k += 1

    # 2. steps and prices follow
    after = state.lagrangian(net)
    if not after < state.highest:
        return state.iterate(run, eta=own_order.eta)
    if state.pace.learns:
        predicted = mine.predicted + sum(reply.predicted for reply in replies)
        state.pace.learn(before - after, predicted, LEAST)
    state.ascend(len(replies) / len(run.owners))

    # 3. slopes of different moments only hint at the certificate: where they are small, all are asked anew
    if len(state.slopes) < len(state.known):
        return state.iterate(run)
    slopes = list(state.slopes.values())
    if run.accepts(state.judge(slopes)[0]):
        if run.rounds_left <= reserve + len(state.waiting) + 1:
            return state.iterate(run)
        slopes = look(run, state)
    return state.iterate(run, slopes)


def receive(run: Run, state: Descent) -> list[Updated]:
    """Replies of at least one party, which is then no longer waited for, and known to be where it says."""
    replies: list[Updated] = []
    for ticket in run.session.wait_any(list(state.waiting.values())):
        reply = ticket.reply()
        replies.append(reply)
        state.learn_where(ticket.owner, reply, ticket.order)  # type: ignore[arg-type]
        state.slopes[ticket.owner] = reply.stationarity
        del state.waiting[ticket.owner]
    return replies


def look(run: Run, state: Descent) -> list[float]:
    """Wait for what is under way; then an exchange in which nobody moves: the slopes of where the parties are."""
    while state.waiting:
        receive(run, state)
    replies = run.ask(update, [state.order(owner, state.z, move=False) for owner in run.owners])
    mine = state.update(state.order(state.share.name, state.z, move=False))
    return [mine.stationarity, replies.total.stationarity]
