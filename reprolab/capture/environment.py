"""The circumstances of one rank that can change its numbers; chosen by name, never everything."""

from __future__ import annotations

import os
import platform
import socket
import sys
from importlib import metadata
from typing import Any

import numpy as np
import psutil
import torch
import torch.distributed as dist

from reprolab.capture.code import modules_sha256
from reprolab.capture.redaction import redact_arguments, redact_text

_VARIABLES = (
    "CUDA_LAUNCH_BLOCKING", "CUDA_MODULE_LOADING", "CUDA_VISIBLE_DEVICES",
    "CUBLAS_WORKSPACE_CONFIG", "CUBLASLT_WORKSPACE_SIZE", "CUDNN_CONV_WSCAP_DBG",
    "ATEN_CPU_CAPABILITY", "DNNL_DEFAULT_FPMATH_MODE", "DNNL_MAX_CPU_ISA", "ONEDNN_MAX_CPU_ISA",
    "ONEDNN_DEFAULT_FPMATH_MODE", "NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "TORCH_BLAS_PREFER_CUBLASLT", "TORCH_CUDNN_V8_API_DISABLED", "TORCH_DETERMINISTIC",
    "TORCH_NUM_THREADS", "TORCHINDUCTOR_MAX_AUTOTUNE", "TORCHDYNAMO_DISABLE",
    "TORCH_COMPILE_DISABLE", "TF32_OVERRIDE", "PYTHONHASHSEED", "PYTHONOPTIMIZE",
    "GLOO_SOCKET_IFNAME", "WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK",
    "KMP_AFFINITY", "KMP_BLOCKTIME", "GOMP_CPU_AFFINITY", "TOKENIZERS_PARALLELISM",
    "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_ALLOC_CONF", "PYTORCH_NO_CUDA_MEMORY_CACHING",
)  # fmt: skip
_FAMILIES = ("OMP_", "MKL_", "OPENBLAS_", "NCCL_", "TORCH_NCCL_")
_PACKAGES = (
    "reprolab", "torch", "numpy", "accelerate", "datasets", "deepspeed", "flash-attn", "lightning",
    "peft", "safetensors", "tokenizers", "torchaudio", "torchdata", "torchvision", "transformers",
    "triton", "xformers", "zarr", "ml_dtypes",
)  # fmt: skip


def environment() -> dict[str, Any]:
    """Circumstances of this rank as plain JSON values.

    Returns
    -------
    dict
        ``versions``, ``hardware``, ``threads``, ``determinism``, ``variables`` (only those on a
        list of names that bear on numbers; others are never read), ``distributed``, ``process``.
    """
    return {
        "versions": _versions(),
        "hardware": _hardware(),
        "threads": _threads(),
        "determinism": _determinism(),
        "variables": variables(),
        "distributed": _distributed(),
        "process": {
            "arguments": redact_arguments(sys.argv),
            "executable": os.path.basename(sys.executable),  # noqa: PTH119 - no machine's paths
            "host": socket.gethostname(),
            "modules_sha256": modules_sha256(),
        },
    }


def variables() -> dict[str, str]:
    """Environment variables that bear on numbers, by an allow-list of names."""
    return {
        name: redact_text(value)
        for name, value in sorted(os.environ.items())
        if name in _VARIABLES or name.startswith(_FAMILIES)
    }


def _versions() -> dict[str, str | None]:
    found: dict[str, str | None] = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    found["cuda"] = torch.version.cuda
    found["cudnn"] = str(torch.backends.cudnn.version()) if torch.cuda.is_available() else None
    found["torch_git"] = torch.version.git_version
    return found


def _hardware() -> dict[str, Any]:
    found: dict[str, Any] = {
        "system": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "processor": _processor(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "cores": psutil.cpu_count(logical=False),
        "logical_cores": psutil.cpu_count(),
        "memory": psutil.virtual_memory().total,
    }
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            device = torch.cuda.get_device_properties(index)
            found[f"cuda:{index}"] = {
                "name": device.name,
                "memory": device.total_memory,
                "capability": f"{device.major}.{device.minor}",
                "multiprocessors": device.multi_processor_count,
            }
    return found


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as lines:  # noqa: PTH123 - a device of the system, not a file
            for line in lines:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor()


def _threads() -> dict[str, Any]:
    return {
        "torch": torch.get_num_threads(),
        "torch_interop": torch.get_num_interop_threads(),
        "affinity": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
    }


def _determinism() -> dict[str, Any]:
    cuda = torch.backends.cuda
    return {
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "deterministic_warn_only": torch.is_deterministic_algorithms_warn_only_enabled(),
        "cudnn_enabled": torch.backends.cudnn.enabled,
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "cudnn_deterministic": torch.backends.cudnn.deterministic,
        "cudnn_allow_tf32": torch.backends.cudnn.allow_tf32,
        "matmul_allow_tf32": cuda.matmul.allow_tf32,
        "matmul_precision": torch.get_float32_matmul_precision(),
        "fp16_reduced_precision_reduction": cuda.matmul.allow_fp16_reduced_precision_reduction,
        "bf16_reduced_precision_reduction": cuda.matmul.allow_bf16_reduced_precision_reduction,
        "flash_attention": cuda.flash_sdp_enabled(),
        "memory_efficient_attention": cuda.mem_efficient_sdp_enabled(),
        "mkldnn": torch.backends.mkldnn.enabled,
        "flush_denormal": _flushes_denormals(),
        "default_dtype": str(torch.get_default_dtype()),
        "autocast_cpu": torch.is_autocast_enabled("cpu"),
        "autocast_cuda": torch.is_autocast_enabled("cuda"),
    }


def _flushes_denormals() -> bool:
    # There is no getter: half of the smallest normal number tells.
    return bool(torch.tensor(np.finfo(np.float32).tiny) / 2 == 0)


def _distributed() -> dict[str, Any]:
    if not (dist.is_available() and dist.is_initialized()):
        return {"initialized": False}
    return {
        "initialized": True,
        "backend": dist.get_backend(),
        "rank": dist.get_rank(),
        "world_size": dist.get_world_size(),
    }
