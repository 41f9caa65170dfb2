"""How much is fuzzed: the same few cases in every run of the tests, many fresh ones for `make fuzz`."""

import os

SEED = int(os.environ.get("WHYFORMER_FUZZ_SEED", "0"))
CASES = int(os.environ.get("WHYFORMER_FUZZ_CASES", "300"))  # of each kind
