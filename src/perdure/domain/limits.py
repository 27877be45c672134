"""The bounds that are no setting and that more than one place needs. The unit stands last in each name."""

# Requests (the Responses API where it sets a bound, otherwise what a local server can honour).
HEAD_MAX_BYTES = 64 * 1024  # of a request, before anybody looks for a token
BODY_MAX_BYTES = 16 * 1024 * 1024
JSON_DEPTH_MAX = 64
INPUT_TEXT_MAX_CHARS = 10_485_760
INPUT_ITEMS_MAX = 10_000
CONTEXT_MAX_BYTES = 64 * 1024 * 1024  # of a conversation with all that it goes on from
REFERENCED_RESPONSES_MAX = 1_000  # whose items one request may refer to
ANSWER_SHARE = 4  # with `truncation: auto` a fourth of the window is kept free where `max_output_tokens` says nothing
METADATA_PAIRS_MAX = 16
METADATA_KEY_MAX_CHARS = 64
METADATA_VALUE_MAX_CHARS = 512
TEMPERATURE_MAX = 2.0
TOP_P_MAX = 1.0
PENALTY_MAX = 2.0  # and as far below zero
TOP_LOGPROBS_MAX = 20
OUTPUT_TOKENS_MIN = 1
OUTPUT_TOKENS_MAX = 2**31 - 1
TOOL_CALLS_MAX = 2**31 - 1
TOOLS_MAX = 512
FUNCTION_NAME_MAX_CHARS = 128
FORMAT_NAME_MAX_CHARS = 64
DESCRIPTION_MAX_CHARS = 65_536
SCHEMA_MAX_BYTES = 256 * 1024
INCLUDE_MAX = 32
SAFETY_IDENTIFIER_MAX_CHARS = 128
IDENTIFIER_MAX_CHARS = 512
UNKNOWN_FIELDS_MAX = 64
UNKNOWN_NAME_MAX_CHARS = 64
IGNORED_MAX = 200  # what had no effect stands in every snapshot: as many are named, the others counted
SEED_MAX = 2**63 - 1  # what an SQLite INTEGER and a signed 64-bit key hold
MODEL_NAME_MAX_CHARS = 256

# What a request gets that names none, of a model that recommends none.
TEMPERATURE_DEFAULT = 1.0
TOP_P_DEFAULT = 1.0

# The queue and the runs.
QUEUE_LENGTH_MAX_TASKS = 1_000
SLOTS_MAX = 32  # each of them needs a row in every step of a batch
CRASHES_MAX = 3  # crashes of one task without a new committed token in between
RETRY_AFTER_QUEUE_FULL_SECONDS = 5

# Reading.
EVENTS_PAGE_MAX = 1_000
EVENTS_PAGE_DEFAULT = 100
EVENTS_PAGE_MAX_BYTES = 1024 * 1024  # a page ends before it would be larger, but not before its first event
TASKS_PAGE_MAX = 100
TASKS_PAGE_DEFAULT = 20
INPUT_ITEMS_PAGE_MAX = 100
INPUT_ITEMS_PAGE_DEFAULT = 20
RESPONSES_PAGE_MAX = 100
RESPONSES_PAGE_DEFAULT = 20
RESPONSES_PAGE_MAX_BYTES = 8 * 1024 * 1024  # a page ends before it would be larger, but not before its first response
FEED_PAGE_EVENTS = 256
FEED_POLL_SECONDS = 1.0  # a lost wake-up costs at most this much
KEEPALIVE_SECONDS = 15.0

# Waiting.
CANCEL_WAIT_SECONDS = 2.0
STORAGE_RETRY_SECONDS = 1.0  # how often held output is offered again to a store that refused it
EPHEMERAL_KEEP_SECONDS = 60  # how long `store: false` outlives its end
UNATTENDED_SECONDS = 1.0  # foreground work that nobody came for stops after this
DELETE_GRACE_SECONDS = 1  # viewers of a deleted response still get its last event
RETENTION_DAYS_DEFAULT = 30.0
TOMBSTONE_KEEP_SECONDS = 30 * 24 * 3600  # how long an expired response is told from one that never was
DATABASE_MAX_BYTES_MIN = 16 * 1024 * 1024
PURGE_BATCH_TASKS = 10
PURGE_BATCH_EVENTS = 2_000  # a response with more of them goes alone
PURGE_PAUSE_SECONDS = 0.02  # between two batches others write
PURGES_REFUSED_MAX = 100  # so many tasks that cannot be purged end a sweep
FORGET_BATCH_NAMES = 500
SWEEP_SECONDS = 60.0
CLOCK_LEAP_SECONDS = 60  # the time of day that is so much further at one look than at the last was set, not slewed
RECOVERY_PAGE_TASKS = 100
DISPATCH_POLL_SECONDS = 1.0  # a lost wake-up costs at most this much
