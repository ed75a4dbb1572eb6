"""Damage that was ordered for all connections of a proxy, those to come among them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from .damage import Damager, Flips, Truncation
from .faults import Direction


def chance(seed: int, connection: int, direction: Direction, purpose: str) -> Random:
    """A source of chance for one purpose, so that no purpose disturbs another."""
    return Random(f"{seed}, {connection}, {direction}, {purpose}")  # noqa: S311 - no secret


@dataclass(frozen=True, slots=True)
class _Order:
    number: int
    directions: Direction
    damage: Flips | Truncation


class DamageOrders:
    """The orders that are not carried out yet."""

    def __init__(self, seed: int) -> None:
        """Begin without orders."""
        self._seed = seed
        self._given = 0
        self._orders: list[_Order] = []

    def give(self, directions: Direction, damage: Flips | Truncation) -> None:
        """Add an order."""
        self._given += 1
        self._orders = [each for each in self._orders if not each.damage.allowance.used_up]
        self._orders.append(_Order(self._given, directions, damage))

    def hand_on(self, damager: Damager, connection: int, direction: Direction) -> None:
        """Tell a new connection all orders for one of its directions."""
        for order in self._orders:
            self._tell(damager, connection, direction, order)

    def hand_on_last(self, damager: Damager, connection: int, direction: Direction) -> None:
        """Tell an open connection the last order."""
        self._tell(damager, connection, direction, self._orders[-1])

    def call_off(self) -> None:
        """Take every order back, from all connections."""
        for order in self._orders:
            order.damage.allowance.revoke()
        self._orders.clear()

    def _tell(self, damager: Damager, connection: int, direction: Direction, order: _Order) -> None:
        if direction in order.directions:
            purpose = f"order {order.number}"
            damager.add(order.damage, chance(self._seed, connection, direction, purpose))
