"""What `attention_flow` costs per layer, by length: the numbers behind its limit.

python benchmarks/cost/flow.py
python benchmarks/cost/flow.py --units 64,128
"""

import argparse
import time

import torch
from transformers import BertConfig, BertForSequenceClassification

import whyformer


def main() -> None:
    """Print seconds per layer for a random model of BERT-base's depth."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--units", default="32,64,128,192", help="lengths, with commas")
    lengths = [int(length) for length in parser.parse_args().units.split(",")]
    layers = 12
    config = BertConfig(hidden_size=48, intermediate_size=64, num_hidden_layers=layers, vocab_size=500)
    torch.manual_seed(0)
    model = BertForSequenceClassification(config).eval()
    for units in lengths:
        ids = torch.randint(0, 500, (1, units))
        start = time.perf_counter()
        whyformer.attribute(model, {"input_ids": ids}, "attention_flow", slow=True)
        print(f"{units} units, {layers} layers: {(time.perf_counter() - start) / layers:.3f} s per layer")


if __name__ == "__main__":
    main()
