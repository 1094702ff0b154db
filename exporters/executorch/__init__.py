"""ExecuTorch. Importing anything here without its package raises an ``ImportError`` that says what to install."""

from exporters.packages import require

require("executorch", "ExecutorchExporter")
