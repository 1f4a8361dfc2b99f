"""Others' queues, to be measured beside ours."""
