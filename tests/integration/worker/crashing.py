"""An application that kills whoever imports it."""

import os
import signal

os.kill(os.getpid(), signal.SIGKILL)
