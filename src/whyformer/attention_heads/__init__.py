"""Which attention heads are kept, and the statistics that say why."""

from whyformer.attention_heads.counts import DIRECTIONS, RELATIONS, HeadStatistics
from whyformer.attention_heads.mask import HeadMask, Thresholds

__all__ = ["DIRECTIONS", "RELATIONS", "HeadMask", "HeadStatistics", "Thresholds"]
