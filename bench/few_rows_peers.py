"""The cases of bench/few_rows.exs by PyTorch, as CUDA graphs. ROWS, TYPES, SIZE and PRODUCTS are the same."""
import json
import os

import torch

torch.backends.cuda.matmul.allow_tf32 = False
TYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
SIZE, PRODUCTS = (int(os.environ.get(name, n)) for name, n in [("SIZE", 4096), ("PRODUCTS", 32)])

for kind in os.environ.get("TYPES", "bf16,f16,f32").split(","):
    matrices = [(torch.randn(SIZE, SIZE, device="cuda") / SIZE**0.5).to(TYPES[kind]) for _ in range(PRODUCTS)]
    for rows in os.environ.get("ROWS", "2,8,16,32,48").split(","):
        start = torch.randn(int(rows), SIZE, device="cuda").to(TYPES[kind])

        def chain():
            x = start
            for matrix in matrices:
                x = x @ matrix
            return x

        chain()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            chain()
        times = []
        for _ in range(18):
            begin, end = torch.cuda.Event(True), torch.cuda.Event(True)
            begin.record()
            graph.replay()
            end.record()
            torch.cuda.synchronize()
            times.append(begin.elapsed_time(end) * 1e3 / PRODUCTS)
        value = round(sorted(times[3:])[7], 2)
        print(json.dumps({"case": f"{rows}x{SIZE}x{SIZE}_{kind}", "peer": "torch-graph", "value": value, "unit": "us"}))
    del matrices, graph
    torch.cuda.empty_cache()
