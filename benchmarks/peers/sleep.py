# SPDX-License-Identifier: Apache-2.0
"""The smallest peer: a step sleeps for as many seconds as the argument says. Serves the tests of the frame."""

import sys
import time

import peer

peer.serve(lambda: time.sleep(float(sys.argv[1])))
