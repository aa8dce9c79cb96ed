"""Writes the module listing of a PyTorch model, for `zerosim --model FILE`.

    from write_module_listing import write_module_listing
    write_module_listing(model, lambda: model(input_ids), "model.json", vocab=50257)

`run_forward` must run one forward pass in training mode. Modules are listed where they first execute.
Add "attention": {"heads": .., "kv_heads": .., "head_dim": ..} to the modules that compute attention.
"""

import json

import torch


def write_module_listing(model, run_forward, path, hidden=None, vocab=None):
    names = {id(p): name for name, p in model.named_parameters()}  # a tied one: its first name
    entries = {}  # keeps the order of first execution

    def tensors(value):
        if isinstance(value, torch.Tensor):
            return [value]
        if isinstance(value, dict):
            value = list(value.values())
        if isinstance(value, (list, tuple)):
            return [t for item in value for t in tensors(item)]
        return []

    def before(name):
        def hook(module, args):
            if name in entries:
                return
            entry = {"name": name, "class": type(module).__name__}
            parameters = [
                {
                    "name": names[id(p)],
                    "shape": list(getattr(p, "ds_shape", p.shape)),  # under ZeRO-3: the whole shape
                    "dtype": str(p.dtype).removeprefix("torch."),
                    "trainable": p.requires_grad,
                }
                for p in module.parameters(recurse=False)
            ]
            if parameters:
                entry["parameters"] = parameters
            entry["positional_gradient_input"] = any(t.requires_grad for t in tensors(args))
            entries[name] = entry

        return hook

    def after(name):
        def hook(module, args, output):
            entries[name].setdefault(
                "gradient_output", any(t.requires_grad for t in tensors(output))
            )

        return hook

    handles = []
    for name, module in model.named_modules():
        handles.append(module.register_forward_pre_hook(before(name)))
        handles.append(module.register_forward_hook(after(name)))
    try:
        run_forward()
    finally:
        for handle in handles:
            handle.remove()

    listing = {"format": "zerosim.module_listing", "version": 1, "name": type(model).__name__}
    if hidden is not None:
        listing["hidden"] = hidden
    if vocab is not None:
        listing["vocab"] = vocab
    executed = {p["name"] for entry in entries.values() for p in entry.get("parameters", [])}
    listing["registration"] = [n for n, _ in model.named_parameters() if n in executed]
    listing["modules"] = list(entries.values())
    with open(path, "w") as file:
        json.dump(listing, file, indent=1)
