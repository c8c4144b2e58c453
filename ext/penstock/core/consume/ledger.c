/*
 * What the program has got of each assigned partition, and what it has processed. From this follow the offsets that are committed:
 * never behind a message that somebody still works on. No Ruby; any thread.
 *
 * A partition has ranges of offsets that were handed out, in order. Each has an owner: the fiber that polled it. A range ends when
 * its owner polls again, or when the program marks it. What precedes the first open range is processed.
 *
 *     handed out:  |---- owner 1 ----|---- owner 2 ----|-- owner 1 --|
 *     marked:      |=======          |=================|             |
 *     processed: up to here ^
 *
 * A message can be marked if and only if it does not come again. Each assignment, seek and rewind begins an epoch, a number that
 * nothing else in the process has. A message knows the epoch in which it was taken, and a partition the one in which it was
 * assigned: an older message was perhaps read by another member since. A seek or rewind back cuts off the offsets that come again.
 * The messages with these offsets that were taken before that epoch cannot be marked any more; those before the cut, on which other
 * threads may work, still can.
 *
 *     handed out:  |---- owner 1 ----|---- owner 2 ----|-- owner 1 --|
 *     rewind to:                           ^ cut: ------------------>|
 */
#include "consume/consume.h"
#include <stdlib.h>
#include <string.h>

struct range {
    struct range *next;                         /* of the partition: later offsets */
    struct range *open_next, *open_previous;    /* of the ledger: ranges that are not marked completely */
    struct ps_place *place;
    uint64_t owner;
    int64_t from, to;                           /* `to` is the offset after the last one */
    int64_t marked;                             /* all before it are marked */
    uint64_t epoch;                             /* in which it was handed out */
    int32_t leader_epoch;                       /* of the last marked message */
    int32_t last_leader_epoch;                  /* of the last message */
};

struct cut { /* offsets that come again, or have come again, of messages that were handed out before `epoch` */
    uint64_t epoch;
    int64_t from, to;
};

enum { ROWS = 256, MOST_SPARE = 64, MOST_CUTS = 16 };

struct ps_place {
    struct ps_place *next;    /* in its row of the table */
    struct range *first, *last;
    uint64_t assigned;        /* the epoch in which it was assigned */
    struct cut cuts[MOST_CUTS]; /* the oldest first */
    int cut_count;
    int64_t begin;            /* where reading began: an offset, or one of librdkafka's numbers for a place; INVALID: unknown */
    int64_t position;         /* after the last message that was handed out; -1: none was */
    int64_t latest;           /* the first message that the latest call of those with messages of it handed out */
    uint64_t call;            /* the number of that call */
    int64_t end;              /* the end of the partition, as it was when librdkafka had fetched all; -1: unknown */
    int64_t processed;        /* all before it are processed; -1: unknown */
    int64_t stored;           /* the latest one that librdkafka got; -1: none */
    int64_t committed;        /* that brokers have, as far as is known; -1: unknown */
    int64_t last_commit;      /* that librdkafka commits as the partition is taken away; -1: nothing, or brokers have answered */
    int32_t leader_epoch;     /* of the message before `processed`; -1: unknown */
    int32_t partition;
    bool paused;              /* by the program */
    bool repeating;           /* messages from `latest` on may come again */
    bool chosen;              /* the program has said where reading begins, or goes on */
    char topic[];
};

static _Atomic uint64_t epochs;

uint64_t ps_ledger_new_epoch(void)
{
    return atomic_fetch_add(&epochs, 1) + 1;
}

bool ps_ledger_init(struct ps_ledger *ledger)
{
    pthread_mutex_init(&ledger->lock, NULL);
    ledger->epoch = ps_ledger_new_epoch();
    ledger->rows = calloc(ROWS, sizeof(struct ps_place *));
    ledger->former = calloc(ROWS, sizeof(struct ps_place *));
    return ledger->rows && ledger->former;
}

/* ---- ranges ---- */

static void open_range(struct ps_ledger *ledger, struct range *range)
{
    range->open_previous = NULL;
    range->open_next = ledger->open;
    if (ledger->open) ledger->open->open_previous = range;
    ledger->open = range;
}

static void end_range(struct ps_ledger *ledger, struct range *range)
{
    if (range->open_previous) range->open_previous->open_next = range->open_next;
    else ledger->open = range->open_next;
    if (range->open_next) range->open_next->open_previous = range->open_previous;
}

static bool is_open(const struct range *range)
{
    return range->marked < range->to;
}

static void drop_ranges(struct ps_ledger *ledger, struct ps_place *place)
{
    while (place->first) {
        struct range *range = place->first;
        place->first = range->next;
        if (is_open(range)) end_range(ledger, range);
        free(range);
    }
    place->last = NULL;
}

/* ---- partitions ---- */

static struct ps_place **row_of(struct ps_place **rows, const char *topic, int32_t partition)
{
    uint32_t hash = 2166136261u;
    for (const char *c = topic; *c; c++) hash = (hash ^ (unsigned char)*c) * 16777619u;
    return &rows[(hash + (uint32_t)partition) % ROWS];
}

static struct ps_place **find_in(struct ps_place **rows, const char *topic, int32_t partition)
{
    struct ps_place **link = row_of(rows, topic, partition);
    while (*link && ((*link)->partition != partition || strcmp((*link)->topic, topic) != 0)) link = &(*link)->next;
    return link;
}

static struct ps_place **find(const struct ps_ledger *ledger, const char *topic, int32_t partition)
{
    return find_in(ledger->rows, topic, partition);
}

/* NULL: no memory. */
static struct ps_place *find_or_add(struct ps_ledger *ledger, const char *topic, int32_t partition)
{
    struct ps_place **link = find(ledger, topic, partition), *place = *link;
    if (place) return place;
    size_t size = strlen(topic) + 1;
    if (!(place = calloc(1, sizeof(*place) + size))) return NULL;
    memcpy(place->topic, topic, size);
    place->partition = partition;
    place->assigned = ledger->epoch;
    place->position = place->end = place->processed = place->stored = place->committed = place->last_commit = -1;
    place->begin = RD_KAFKA_OFFSET_INVALID;
    place->leader_epoch = -1;
    return *link = place;
}

static void set_repeating(struct ps_ledger *ledger, struct ps_place *place, bool repeating)
{
    if (place->repeating != repeating) atomic_fetch_add(&ledger->repeating, repeating ? 1 : -1);
    place->repeating = repeating;
}

/* The partition is taken away. What is known to be committed stays known. */
static void remove_place(struct ps_ledger *ledger, struct ps_place **link, bool commits)
{
    struct ps_place *place = *link, **former = find_in(ledger->former, place->topic, place->partition), *replaced = *former;
    *link = place->next;
    set_repeating(ledger, place, false);
    drop_ranges(ledger, place);
    if (ledger->reserved == place) ledger->reserved = NULL;
    if (commits && place->stored > place->committed) place->last_commit = place->stored;
    if (replaced && place->committed < 0) place->committed = replaced->committed;
    place->next = replaced ? replaced->next : NULL;
    *former = place;
    free(replaced);
}

void ps_ledger_clear(struct ps_ledger *ledger, bool commits)
{
    pthread_mutex_lock(&ledger->lock);
    for (int row = 0; row < ROWS; row++)
        while (ledger->rows[row]) remove_place(ledger, &ledger->rows[row], commits);
    ledger->epoch = ps_ledger_new_epoch();
    pthread_mutex_unlock(&ledger->lock);
}

/* Frees spare ranges until so many are left. */
static void trim(struct ps_ledger *ledger, int left)
{
    for (struct range *range; ledger->spares > left; ledger->spares--) {
        range = ledger->spare;
        ledger->spare = range->next;
        free(range);
    }
}

void ps_ledger_destroy(struct ps_ledger *ledger)
{
    if (ledger->rows && ledger->former) ps_ledger_clear(ledger, false);
    for (int row = 0; ledger->former && row < ROWS; row++) {
        for (struct ps_place *place = ledger->former[row], *next; place; place = next) {
            next = place->next;
            free(place);
        }
    }
    trim(ledger, 0);
    free(ledger->rows);
    free(ledger->former);
    pthread_mutex_destroy(&ledger->lock);
}

void ps_ledger_assigned(struct ps_ledger *ledger)
{
    pthread_mutex_lock(&ledger->lock);
    ledger->epoch = ps_ledger_new_epoch();
    pthread_mutex_unlock(&ledger->lock);
}

void ps_ledger_revoked(struct ps_ledger *ledger, const rd_kafka_topic_partition_list_t *list, bool commits)
{
    pthread_mutex_lock(&ledger->lock);
    for (int i = 0; i < list->cnt; i++) {
        struct ps_place **link = find(ledger, list->elems[i].topic, list->elems[i].partition);
        if (*link) remove_place(ledger, link, commits); /* M:revoked_places_removed */
    }
    ledger->epoch = ps_ledger_new_epoch();
    pthread_mutex_unlock(&ledger->lock);
}

/* ---- pausing ---- */

bool ps_ledger_pause(struct ps_ledger *ledger, const char *topic, int32_t partition, bool paused)
{
    pthread_mutex_lock(&ledger->lock);
    struct ps_place *place = paused ? find_or_add(ledger, topic, partition) : *find(ledger, topic, partition);
    bool changed = place && place->paused != paused;
    if (changed) place->paused = paused;
    pthread_mutex_unlock(&ledger->lock);
    return changed;
}

rd_kafka_topic_partition_list_t *ps_ledger_paused(struct ps_ledger *ledger, const rd_kafka_topic_partition_list_t *among)
{
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(8);
    pthread_mutex_lock(&ledger->lock);
    for (int row = 0; row < ROWS; row++) {
        for (struct ps_place *place = ledger->rows[row]; place; place = place->next) {
            if (!place->paused || (among && !rd_kafka_topic_partition_list_find(among, place->topic, place->partition))) continue;
            rd_kafka_topic_partition_list_add(list, place->topic, place->partition);
        }
    }
    pthread_mutex_unlock(&ledger->lock);
    return list;
}

/*
 * In a cooperative rebalance librdkafka pauses the partitions that stay, and resumes them after the answer, where it believes that
 * the program has come to. It learns of messages only after they were taken from the queue: of one at a time, or of all that one
 * call of rd_kafka_consume_batch_queue returns. If the pause comes in between, it reads them again (2.0.2 to 2.14). From the pause
 * on it drops what is in the queue. So they are among the messages of the partition that were handed out last, and they come before
 * any other message of their partition.
 */
void ps_ledger_resumed(struct ps_ledger *ledger)
{
    pthread_mutex_lock(&ledger->lock);
    for (int row = 0; row < ROWS; row++)
        for (struct ps_place *place = ledger->rows[row]; place; place = place->next)
            set_repeating(ledger, place, place->position >= 0);
    ledger->resumed_us = ps_now_us();
    pthread_mutex_unlock(&ledger->lock);
}

/* Later, an earlier offset has another reason: a partition that was truncated. */
enum { LONGEST_REPETITION_US = 60 * 1000 * 1000 };

static void end_repetitions(struct ps_ledger *ledger)
{
    for (int row = 0; row < ROWS; row++)
        for (struct ps_place *place = ledger->rows[row]; place; place = place->next) set_repeating(ledger, place, false);
}

bool ps_ledger_repeated(struct ps_ledger *ledger, const char *topic, int32_t partition, int64_t offset)
{
    pthread_mutex_lock(&ledger->lock);
    if (ps_now_us() - ledger->resumed_us > LONGEST_REPETITION_US) end_repetitions(ledger);
    struct ps_place *place = *find(ledger, topic, partition);
    bool repeated = place && place->repeating && offset >= place->latest && offset < place->position;
    if (place && !repeated) set_repeating(ledger, place, false);
    pthread_mutex_unlock(&ledger->lock);
    return repeated;
}

/* The offset from which on messages come; INT64_MAX: none that was handed out comes again. */
static int64_t comes_next(const struct ps_place *place)
{
    if (place->position >= 0) return place->position;
    if (place->begin >= 0) return place->begin;
    return place->begin == RD_KAFKA_OFFSET_END ? INT64_MAX : 0;
}

/* It was taken in this epoch, or 0: not compared. Was the partition not taken away since, and does the message not come again? */
static bool held(const struct ps_place *place, int64_t offset, uint64_t epoch)
{
    if (epoch && epoch < place->assigned) return false;
    for (int i = 0; epoch && i < place->cut_count; i++) { /* M:cuts_are_limited */
        const struct cut *cut = &place->cuts[i];
        if (epoch < cut->epoch && offset >= cut->from && offset < cut->to) return false;
    }
    return true;
}

bool ps_ledger_holds(struct ps_ledger *ledger, const char *topic, int32_t partition, int64_t offset, uint64_t epoch)
{
    pthread_mutex_lock(&ledger->lock);
    const struct ps_place *place = *find(ledger, topic, partition);
    bool holds = place && held(place, offset, epoch);
    pthread_mutex_unlock(&ledger->lock);
    return holds;
}

uint64_t ps_ledger_began_itself(struct ps_ledger *ledger, const char *topic, int32_t partition)
{
    pthread_mutex_lock(&ledger->lock);
    const struct ps_place *place = *find(ledger, topic, partition);
    uint64_t epoch = place && !place->chosen ? place->assigned : 0;
    pthread_mutex_unlock(&ledger->lock);
    return epoch;
}

bool ps_ledger_open_before(struct ps_ledger *ledger, const char *topic, int32_t partition, int64_t offset)
{
    pthread_mutex_lock(&ledger->lock);
    const struct ps_place *place = *find(ledger, topic, partition);
    bool open = place && place->first && place->first->marked < offset; /* the first range is never marked completely */
    pthread_mutex_unlock(&ledger->lock);
    return open;
}

void ps_ledger_ended(struct ps_ledger *ledger, const char *topic, int32_t partition, int64_t offset)
{
    pthread_mutex_lock(&ledger->lock);
    struct ps_place *place = find_or_add(ledger, topic, partition);
    if (place) place->end = offset;
    pthread_mutex_unlock(&ledger->lock);
}

int64_t ps_ledger_reached(struct ps_ledger *ledger, const char *topic, int32_t partition)
{
    pthread_mutex_lock(&ledger->lock);
    const struct ps_place *place = *find(ledger, topic, partition);
    int64_t reached = RD_KAFKA_OFFSET_INVALID;
    if (place) {
        reached = place->position >= 0 ? place->position : place->begin;
        if (place->end >= 0 && reached < place->end) reached = place->end;
    }
    pthread_mutex_unlock(&ledger->lock);
    return reached;
}

bool ps_ledger_untouched(struct ps_ledger *ledger, const char *topic, int32_t partition)
{
    pthread_mutex_lock(&ledger->lock);
    const struct ps_place *place = *find(ledger, topic, partition);
    bool untouched = !place || (place->position < 0 && place->stored < 0);
    pthread_mutex_unlock(&ledger->lock);
    return untouched;
}

int64_t ps_ledger_position(struct ps_ledger *ledger, const char *topic, int32_t partition)
{
    pthread_mutex_lock(&ledger->lock);
    const struct ps_place *place = *find(ledger, topic, partition);
    int64_t position = place ? place->position : -1;
    pthread_mutex_unlock(&ledger->lock);
    return position;
}

/* ---- what is processed ---- */

static void unlink_next(struct ps_place *place, struct range *range)
{
    struct range *next = range->next;
    if (!(range->next = next->next)) place->last = range;
    free(next);
}

/* So the number of ranges depends on how many are open, not on what was handed out since. */
static void join_marked(struct ps_place *place)
{
    for (struct range *range = place->first; range && range->next;) {
        const struct range *next = range->next;
        if (is_open(range) || is_open(next)) {
            range = range->next;
            continue;
        }
        range->to = range->marked = next->to;
        range->leader_epoch = next->leader_epoch;
        unlink_next(place, range);
    }
}

/* Removes the marked ranges at the beginning, and notes what is processed. */
static void advance(struct ps_ledger *ledger, struct ps_place *place)
{
    struct range *range;
    while ((range = place->first) && !is_open(range)) { /* M:open_range_stops_progress */
        place->processed = range->to;
        place->leader_epoch = range->leader_epoch;
        if (!(place->first = range->next)) place->last = NULL;
        free(range);
    }
    join_marked(place); /* M:marked_ranges_join */
    if (range && range->marked > range->from) {
        place->processed = range->marked;
        place->leader_epoch = range->leader_epoch;
    }
    if (place->processed >= 0 && place->processed != place->stored) ledger->dirty = true;
}

/* ---- what comes again ---- */

static void remove_cut(struct ps_place *place, int at)
{
    memmove(&place->cuts[at], &place->cuts[at + 1], (size_t)(--place->cut_count - at) * sizeof(place->cuts[0]));
}

/* Which one to forget: one that a later one contains, otherwise the oldest. A message that only this one concerns can be marked again,
 * which changes nothing if it has come again: see ps_ledger_mark. */
static int least_needed(const struct ps_place *place)
{
    for (int i = 0; i < place->cut_count; i++)
        for (int later = i + 1; later < place->cut_count; later++)
            if (place->cuts[later].from <= place->cuts[i].from && place->cuts[later].to >= place->cuts[i].to) return i;
    return 0;
}

static void add_cut(struct ps_place *place, int at, struct cut cut)
{
    if (cut.from >= cut.to) return;
    if (place->cut_count == MOST_CUTS) {
        int forgotten = least_needed(place);
        remove_cut(place, forgotten);
        if (forgotten < at) at--;
    }
    memmove(&place->cuts[at + 1], &place->cuts[at], (size_t)(place->cut_count++ - at) * sizeof(place->cuts[0]));
    place->cuts[at] = cut;
}

/*
 * What was handed out from `from` on comes again: also what earlier cuts were to let come again, and has not come yet. Of the latest
 * cut this is what follows the next message; of earlier ones, what follows the messages that were handed out before later cuts.
 */
static void cut(struct ps_place *place, uint64_t epoch, int64_t from)
{
    int64_t to = comes_next(place), come = to;
    for (int i = place->cut_count - 1; i >= 0; i--) {
        struct cut *earlier = &place->cuts[i];
        if (earlier->to <= come) continue;
        to = earlier->to;
        if (earlier->from < come) earlier->to = come;
        else remove_cut(place, i);
        come = to;
    }
    add_cut(place, place->cut_count, (struct cut){ epoch, from, to });
}

/* What comes next, up to `to`, does not come, whatever earlier cuts were to let come again. */
static void skip(struct ps_place *place, int64_t to)
{
    int64_t come = comes_next(place);
    for (int i = place->cut_count - 1; i >= 0; i--) { /* M:skipped_messages_markable */
        struct cut *cut = &place->cuts[i], rest = *cut;
        if (cut->to <= come) continue;
        if (rest.from < to) rest.from = to;
        if (cut->from < come) cut->to = come;
        else remove_cut(place, i--);
        come = rest.to;
        add_cut(place, i + 1, rest);
    }
}

/* False: nothing is left of the range. */
static bool cut_range(struct ps_ledger *ledger, struct range *range, int64_t offset)
{
    if (range->to <= offset) return true;
    bool open = is_open(range);
    range->to = offset;
    if (range->marked > offset) range->marked = offset;
    if (open && (range->from >= offset || !is_open(range))) end_range(ledger, range);
    return range->from < offset;
}

static void cut_ranges(struct ps_ledger *ledger, struct ps_place *place, int64_t offset)
{
    struct range *range = place->first, **link = &place->first, *next;
    place->last = NULL;
    for (; range; range = next) {
        next = range->next;
        if (cut_range(ledger, range, offset)) {
            *link = place->last = range;
            link = &range->next;
        } else {
            free(range);
        }
    }
    *link = NULL;
}

/* Reading goes on at `offset`. Other threads may work on earlier messages, which do not come again. */
static void read_from(struct ps_ledger *ledger, struct ps_place *place, int64_t offset)
{
    ledger->epoch = ps_ledger_new_epoch();
    if (offset > comes_next(place)) skip(place, offset);
    else cut(place, ledger->epoch, offset);
    cut_ranges(ledger, place, offset);
    advance(ledger, place);
    place->end = -1;
}

/* The program gets what it has got before, from `offset` on. */
static void go_back(struct ps_ledger *ledger, struct ps_place *place, int64_t offset)
{
    if (place->processed > offset) place->processed = offset; /* M:rewind_lowers_processed */
    read_from(ledger, place, offset);
    place->position = place->begin = offset;
}

/* The log has begun anew, or was truncated. */
static bool begins_anew(const struct ps_place *place, int64_t offset)
{
    if (place->position < 0 && place->begin < 0) return place->last && offset < place->last->to;
    return offset < comes_next(place);
}

/* ---- handing out ---- */

static bool add_spare(struct ps_ledger *ledger)
{
    struct range *range = calloc(1, sizeof(*range));
    if (!range) return false;
    range->next = ledger->spare;
    ledger->spare = range;
    ledger->spares++;
    return true;
}

/* The partition that was reserved last, if it is this one. `reserved` and `spare` belong to the thread that holds consumer->taking, as do
 * all that remove partitions. So most calls take no lock, and compute no hash. */
static struct ps_place *reserved(const struct ps_ledger *ledger, const char *topic, int32_t partition)
{
    struct ps_place *place = ledger->reserved;
    return place && place->partition == partition && strcmp(place->topic, topic) == 0 ? place : NULL;
}

bool ps_ledger_reserve(struct ps_ledger *ledger, const char *topic, int32_t partition, int ranges)
{
    while (ledger->spares < ranges)
        if (!add_spare(ledger)) return false;
    if (reserved(ledger, topic, partition)) return true;
    pthread_mutex_lock(&ledger->lock);
    ledger->reserved = find_or_add(ledger, topic, partition);
    pthread_mutex_unlock(&ledger->lock);
    return ledger->reserved != NULL;
}

/* NULL: no memory. */
static struct ps_place *reserved_or_added(struct ps_ledger *ledger, const char *topic, int32_t partition)
{
    struct ps_place *place = reserved(ledger, topic, partition);
    return place ? place : find_or_add(ledger, topic, partition);
}

static struct range *new_range(struct ps_ledger *ledger)
{
    struct range *range = ledger->spare;
    if (!range) return calloc(1, sizeof(*range));
    ledger->spare = range->next;
    ledger->spares--;
    range->next = NULL;
    return range;
}

/* False: no memory. `ledger->calls` is the number of the call. */
static bool hand_out(struct ps_ledger *ledger, struct ps_place *place, int64_t offset, int32_t leader_epoch, uint64_t owner)
{
    struct range *range = place->last;
    bool goes_on = range && range->owner == owner && range->epoch == ledger->epoch; /* M:ranges_have_one_owner */
    if (!goes_on || !is_open(range) || range->to > offset) {
        if (!(range = new_range(ledger))) return false;
        range->place = place;
        range->owner = owner;
        range->epoch = ledger->epoch;
        range->from = range->marked = offset;
        range->to = offset + 1;
        if (place->last) place->last->next = range;
        else place->first = range;
        place->last = range;
        open_range(ledger, range);
    }
    range->to = offset + 1;
    range->last_leader_epoch = leader_epoch;
    if (place->call != ledger->calls) place->latest = offset;
    place->call = ledger->calls;
    place->position = offset + 1;
    return true;
}

bool ps_ledger_handed_out(struct ps_ledger *ledger, const char *topic, int32_t partition, int64_t offset, int32_t leader_epoch,
                          uint64_t owner)
{
    pthread_mutex_lock(&ledger->lock);
    struct ps_place *place = find_or_add(ledger, topic, partition);
    if (place && begins_anew(place, offset)) go_back(ledger, place, offset);
    ledger->calls++;
    bool noted = place && hand_out(ledger, place, offset, leader_epoch, owner);
    pthread_mutex_unlock(&ledger->lock);
    return noted;
}

/* With the lock, before its messages are handed out: they all get the ledger's epoch. */
static void notice_new_logs(struct ps_ledger *ledger, const struct ps_fetched *fetched)
{
    const struct ps_record *before = NULL;
    for (size_t i = 0; i < fetched->count; i++) {
        const struct ps_record *record = &fetched->records[i];
        if (before && before->partition == record->partition && before->topic == record->topic) continue;
        before = record;
        struct ps_place *place = reserved_or_added(ledger, fetched->topics[record->topic], record->partition);
        if (place && begins_anew(place, record->offset)) go_back(ledger, place, record->offset);
    }
}

bool ps_ledger_handed_out_all(struct ps_ledger *ledger, struct ps_fetched *fetched, uint64_t owner)
{
    struct ps_place *place = NULL;
    const struct ps_record *before = NULL;
    bool noted = true;
    pthread_mutex_lock(&ledger->lock);
    notice_new_logs(ledger, fetched); /* M:new_log_cuts */
    ledger->calls++;
    fetched->epoch = ledger->epoch;
    for (size_t i = 0; noted && i < fetched->count; i++) {
        const struct ps_record *record = &fetched->records[i];
        if (!before || before->partition != record->partition || before->topic != record->topic)
            place = reserved_or_added(ledger, fetched->topics[record->topic], record->partition);
        before = record;
        noted = place && hand_out(ledger, place, record->offset, record->leader_epoch, owner);
    }
    for (int i = 0; noted && i < fetched->end_count; i++) {
        const struct ps_end *end = &fetched->ends[i];
        if ((place = find_or_add(ledger, fetched->topics[end->topic], end->partition))) place->end = end->offset;
    }
    pthread_mutex_unlock(&ledger->lock);
    trim(ledger, MOST_SPARE);
    return noted;
}

/* ---- positions ---- */

void ps_ledger_begin(struct ps_ledger *ledger, const char *topic, int32_t partition, int64_t offset)
{
    pthread_mutex_lock(&ledger->lock);
    struct ps_place *place = find_or_add(ledger, topic, partition);
    if (place) {
        place->begin = offset;
        place->chosen = true;
    }
    pthread_mutex_unlock(&ledger->lock);
}

void ps_ledger_seek(struct ps_ledger *ledger, const char *topic, int32_t partition, int64_t offset, bool rewinds)
{
    pthread_mutex_lock(&ledger->lock);
    struct ps_place *place = find_or_add(ledger, topic, partition);
    if (place) {
        read_from(ledger, place, offset >= 0 ? offset : offset == RD_KAFKA_OFFSET_END ? INT64_MAX : 0);
        if (rewinds) drop_ranges(ledger, place); /* the program has chosen what is committed */
        if (rewinds || place->processed > offset) place->processed = -1;
        if (rewinds) place->stored = offset; /* M:rewound_offset_known */
        place->position = -1;
        place->begin = offset; /* M:seek_sets_begin */
        place->chosen = true;
        set_repeating(ledger, place, false);
    }
    pthread_mutex_unlock(&ledger->lock);
}

void ps_ledger_rewind(struct ps_ledger *ledger, const char *topic, int32_t partition, int64_t offset)
{
    pthread_mutex_lock(&ledger->lock);
    struct ps_place *place = *find(ledger, topic, partition);
    if (place) go_back(ledger, place, offset);
    pthread_mutex_unlock(&ledger->lock);
}

/* ---- marking ---- */

static void mark_range(struct ps_ledger *ledger, struct range *range, int64_t to, int32_t leader_epoch)
{
    if (to >= range->to) {
        to = range->to;
        leader_epoch = range->last_leader_epoch;
    }
    if (to <= range->marked) return;
    range->marked = to;
    range->leader_epoch = leader_epoch;
    if (!is_open(range)) end_range(ledger, range);
}

void ps_ledger_finish(struct ps_ledger *ledger, uint64_t owner)
{
    struct range *next;
    pthread_mutex_lock(&ledger->lock);
    for (struct range *range = ledger->open; range; range = next) {
        next = range->open_next;
        bool others = owner ? (range->owner & ~PS_NOT_RECEIVED) != owner : (range->owner & PS_NOT_RECEIVED) != 0;
        if (others) continue; /* M:poll_marks_own_ranges */
        struct ps_place *place = range->place;
        mark_range(ledger, range, range->to, range->last_leader_epoch);
        /* Frees only ranges of this partition that are marked, so not `next`, which is open. */
        advance(ledger, place);
    }
    pthread_mutex_unlock(&ledger->lock);
}

void ps_ledger_receive(struct ps_ledger *ledger, uint64_t owner, bool received)
{
    uint64_t from = received ? owner | PS_NOT_RECEIVED : owner, to = received ? owner : owner | PS_NOT_RECEIVED;
    pthread_mutex_lock(&ledger->lock);
    for (struct range *range = ledger->open; range; range = range->open_next)
        if (range->owner == from) range->owner = to;
    pthread_mutex_unlock(&ledger->lock);
}

uint64_t ps_ledger_epoch(struct ps_ledger *ledger)
{
    pthread_mutex_lock(&ledger->lock);
    uint64_t epoch = ledger->epoch;
    pthread_mutex_unlock(&ledger->lock);
    return epoch;
}

bool ps_ledger_open(struct ps_ledger *ledger)
{
    pthread_mutex_lock(&ledger->lock);
    bool any = ledger->open != NULL;
    pthread_mutex_unlock(&ledger->lock);
    return any;
}

static struct range *range_with(const struct ps_place *place, int64_t offset)
{
    struct range *range = place->first;
    while (range && range->to <= offset) range = range->next;
    return range && range->from <= offset ? range : NULL;
}

bool ps_ledger_mark(struct ps_ledger *ledger, const char *topic, int32_t partition, int64_t offset, int32_t leader_epoch,
                    uint64_t epoch)
{
    pthread_mutex_lock(&ledger->lock);
    struct ps_place *place = *find(ledger, topic, partition);
    bool current = place && held(place, offset, epoch) && offset < comes_next(place); /* M:mark_checks_epoch */
    struct range *of = current ? range_with(place, offset) : NULL; /* NULL: it is processed */
    if (of && is_open(of) && epoch && of->epoch != epoch) current = false; /* another copy: see add_cut */
    if (current && of && is_open(of)) {
        for (struct range *range = place->first; range && range->from <= offset; range = range->next)
            if (range->owner == of->owner) mark_range(ledger, range, offset + 1, leader_epoch); /* M:mark_keeps_to_owner */
        advance(ledger, place);
    }
    pthread_mutex_unlock(&ledger->lock);
    return current;
}

bool ps_ledger_in_work(struct ps_ledger *ledger, const rd_kafka_topic_partition_list_t *list)
{
    bool in_work = false;
    pthread_mutex_lock(&ledger->lock);
    for (const struct range *range = ledger->open; range && !in_work; range = range->open_next)
        in_work = rd_kafka_topic_partition_list_find((rd_kafka_topic_partition_list_t *)list, range->place->topic,
                                                     range->place->partition) != NULL;
    pthread_mutex_unlock(&ledger->lock);
    return in_work;
}

bool ps_ledger_owns(struct ps_ledger *ledger, const char *topic, int32_t partition, uint64_t epoch)
{
    pthread_mutex_lock(&ledger->lock);
    const struct ps_place *place = *find(ledger, topic, partition);
    bool owns = place && place->assigned <= epoch;
    pthread_mutex_unlock(&ledger->lock);
    return owns;
}

/* ---- what to store and commit ---- */

static void add_offset(rd_kafka_topic_partition_list_t *list, const struct ps_place *place)
{
    rd_kafka_topic_partition_t *to = rd_kafka_topic_partition_list_add(list, place->topic, place->partition);
    to->offset = place->processed;
    ps_set_leader_epoch(to, place->leader_epoch);
}

/*
 * The lock is held over rd_kafka_offsets_store, so that no other thread gives librdkafka an earlier offset after this one. The call
 * waits for nothing. It fails for partitions that librdkafka has lost meanwhile; another member reads their messages again.
 */
bool ps_ledger_store(struct ps_ledger *ledger, rd_kafka_t *rk)
{
    rd_kafka_topic_partition_list_t *list = NULL;
    pthread_mutex_lock(&ledger->lock);
    for (int row = 0; ledger->dirty && row < ROWS; row++) {
        for (struct ps_place *place = ledger->rows[row]; place; place = place->next) {
            if (place->processed < 0 || place->processed == place->stored) continue;
            if (place->processed < place->committed) continue; /* M:committed_offset_stays */
            if (!list) list = rd_kafka_topic_partition_list_new(8);
            add_offset(list, place);
            place->stored = place->processed;
        }
    }
    if (list) rd_kafka_offsets_store(rk, list);
    ledger->dirty = false;
    pthread_mutex_unlock(&ledger->lock);
    if (list) rd_kafka_topic_partition_list_destroy(list);
    return list != NULL;
}

/* Brokers have answered the commit of a partition. */
static void end_last_commit(struct ps_ledger *ledger, const rd_kafka_topic_partition_t *answered)
{
    struct ps_place *former = *find_in(ledger->former, answered->topic, answered->partition);
    if (former && answered->offset >= former->last_commit) former->last_commit = -1;
}

void ps_ledger_committed(struct ps_ledger *ledger, rd_kafka_t *rk, const rd_kafka_topic_partition_list_t *offsets)
{
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(offsets->cnt);
    pthread_mutex_lock(&ledger->lock);
    for (int i = 0; i < offsets->cnt; i++) {
        const rd_kafka_topic_partition_t *from = &offsets->elems[i];
        if (from->offset < 0) continue;
        end_last_commit(ledger, from);
        if (from->err) continue;
        struct ps_place *place = *find(ledger, from->topic, from->partition);
        struct ps_place *known = place ? place : *find_in(ledger->former, from->topic, from->partition);
        if (known) known->committed = from->offset;
        if (!place || place->stored < 0 || place->stored >= from->offset) continue;
        place->stored = from->offset;
        rd_kafka_topic_partition_list_add(list, from->topic, from->partition)->offset = from->offset;
    }
    if (list->cnt > 0) rd_kafka_offsets_store(rk, list);
    pthread_mutex_unlock(&ledger->lock);
    rd_kafka_topic_partition_list_destroy(list);
}

void ps_ledger_not_committed(struct ps_ledger *ledger, const rd_kafka_topic_partition_list_t *offsets)
{
    pthread_mutex_lock(&ledger->lock);
    for (int i = 0; i < offsets->cnt; i++) end_last_commit(ledger, &offsets->elems[i]);
    pthread_mutex_unlock(&ledger->lock);
}

void ps_ledger_begin_committed(struct ps_ledger *ledger, const rd_kafka_topic_partition_list_t *offsets)
{
    pthread_mutex_lock(&ledger->lock);
    for (int i = 0; offsets && i < offsets->cnt; i++) {
        const rd_kafka_topic_partition_t *from = &offsets->elems[i];
        if (from->err) continue;
        bool any = from->offset >= 0; /* otherwise the group has no offset, perhaps not any more */
        struct ps_place *place = any ? find_or_add(ledger, from->topic, from->partition)
                                     : *find_in(ledger->former, from->topic, from->partition);
        if (place) place->committed = any ? from->offset : -1;
        if (place && !any) place->last_commit = -1;
    }
    pthread_mutex_unlock(&ledger->lock);
}

static bool begins_as_committed(const struct ps_place *place)
{
    return !place->chosen || place->begin == RD_KAFKA_OFFSET_STORED || place->begin == RD_KAFKA_OFFSET_INVALID;
}

static bool comes_again(const struct ps_place *place, int64_t offset, uint64_t epoch)
{
    return epoch < place->assigned ? !begins_as_committed(place) : !held(place, offset, epoch);
}

bool ps_ledger_has_committed(struct ps_ledger *ledger, const char *topic, int32_t partition, int64_t next, uint64_t epoch)
{
    pthread_mutex_lock(&ledger->lock);
    const struct ps_place *place = *find(ledger, topic, partition), *former = *find_in(ledger->former, topic, partition);
    const struct ps_place *known = place && place->committed >= 0 ? place : former;
    bool reached = known && (known->committed >= next || known->last_commit >= next);
    bool committed = reached && !(place && comes_again(place, next - 1, epoch));
    pthread_mutex_unlock(&ledger->lock);
    return committed;
}

rd_kafka_topic_partition_list_t *ps_ledger_processed(struct ps_ledger *ledger)
{
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(8);
    pthread_mutex_lock(&ledger->lock);
    for (int row = 0; row < ROWS; row++)
        for (struct ps_place *place = ledger->rows[row]; place; place = place->next)
            if (place->processed >= 0) add_offset(list, place);
    pthread_mutex_unlock(&ledger->lock);
    return list;
}
