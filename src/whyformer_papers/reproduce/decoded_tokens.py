"""The shared tokens that the Decoded paper prints in its Tables 3 to 9, as it spells them."""

from collections.abc import Mapping
from types import MappingProxyType

NOTHING = "(none)"
_WORLD, _SPORTS, _BUSINESS, _SCI_TECH = range(4)
_REPEATED = (  # the paper prints Shapley's row for World and Business once more for World and Sci/Tech
    "NEW, ONDON, YORK, Charges, expected, Thursday, rattled, ASHINGTON, Reuters, Wednesday, premiums, Tuesday, "
    "plunged, surged, ANGEL, yesterday"
)
_BY_PAIR: dict[tuple[int, int], tuple[str, str, str, str]] = {  # Shapley, Occlusion, Integrated, decoded l6
    (_WORLD, _SPORTS): (
        "NEW, apologised, FIELD, Defeat, CHAR, ONDON, YORK, UNITED, Thursday, shook, ASHINGTON, Wednesday, Tuesday, "
        "ENS, tonight, roared, Reuters, AP, ANGEL, yesterday",
        "NEW, ELS, Calif, AFP, \\, YORK, ONDON, ASHINGTON, Tuesday, ENS, IJ, UPDATE, Charges, awaits, IGH, comma, "
        "Monday, roared, Reuters, VER, AP, ANGEL, yesterday, BE",
        "NEW, apologised, FIELD, Calif, chilly, \\, ONDON, YORK, Talks, UNITED, Thursday, ASHINGTON, Wednesday, ENS, "
        "PARK, Update, embattled, quot, roared, Reuters, AP, ANG, ., ANGEL, yesterday",
        NOTHING,
    ),
    (_WORLD, _BUSINESS): (
        _REPEATED,
        "EVA, NEW, ELS, Calif, optimism, \\, ONDON, YORK, ASHINGTON, Tuesday, UPDATE, Charges, Update, Shares, "
        "hammered, Monday, surged, embattled, Reuters, MOV, premiums, Profit, regulators, ANGEL, yesterday",
        "NEW, negotiators, YORK, ONDON, pledges, Thursday, ASHINGTON, Wednesday, Tuesday, plunged, tighten, Update, "
        "IPO, soared, surged, Says, expected, yesterday, premiums, ANGEL, Charges",
        "ONDON, Funds, ASHINGTON, Reuters, capitalists, ANGEL",
    ),
    (_SPORTS, _BUSINESS): (
        "NEW, NEY, STON, ONDON, YORK, Thursday, ASHINGTON, Wednesday, Tuesday, INGTON, eased, OND, woes, HOU, Reuters, "
        "ANGEL, MARK, yesterday, rallied",
        "NEW, OCK, BUR, ELS, STON, Calif, \\, ONDON, YORK, roaring, Thursday, ASHINGTON, Wednesday, TON, Tuesday, "
        "INGTON, STER, eased, UPDATE, ANC, Charges, –, Monday, HOU, bruised, Reuters, NEWS, BUS, ANGEL, yesterday",
        "ANC, NEW, OCK, YORK, ONDON, HOU, Thursday, Update, ASHINGTON, Wednesday, INGTON, STER, TOR, ANGEL, MARK, "
        "yesterday, rallied",
        "\\, yesterday",
    ),
    (_WORLD, _SCI_TECH): (
        _REPEATED,
        'expected, Update, ASHINGTON, ,", Reuters, terror, Reuters, AFP, Calls, \\',
        'unveil, AFP, Reuters, ,", Reuters, AFP, .", ANGEL, \\',
        "ASHINGTON",
    ),
    (_SPORTS, _SCI_TECH): (
        "showdown, Reuters, HAS",
        'ATT, Boost, –, ASHINGTON, ,", Reuters, HAEL, WITH, STON, AFP, STER, sighed, Factor, \\\\',
        'showdown, Reuters, HAEL, Adds, .", pesky, ANGEL, \\',
        NOTHING,
    ),
    (_BUSINESS, _SCI_TECH): (
        "Quote, Boost, Reuters, trust",
        "NEY, Update, –, quot, Quote, Consumers, ASHINGTON, HERE, Reuters, STON, STER, BlackBerry, Customers, EMBER, "
        "Pact, \\, Update",
        "daq, Quote, Craigslist, checks, ?, uters, ANGEL, profits, Update",
        "ASHINGTON",
    ),
}
_ROWS = ("Shapley", "Occlusion", "Integrated, 25 steps", "decoded l6")
_ON_SST2 = {
    "Simple": "slick, ' ', pokemon",
    "Smooth": "pokemon, creepy, shameless, dreadful, painfully, ' '",
    "Integrated": "dumb, creepy, stupid, tedious, ' '",
    "decoded l7": NOTHING,
}

SHARED_TOKENS: Mapping[tuple[str, str, tuple[int, int]], str] = MappingProxyType(
    {
        **{
            (row, "AG News", pair): tokens
            for pair, by_row in _BY_PAIR.items()
            for row, tokens in zip(_ROWS, by_row, strict=True)
        },
        **{(row, "SST-2", (0, 1)): tokens for row, tokens in _ON_SST2.items()},
    }
)
