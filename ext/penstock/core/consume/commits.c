/*
 * What a consumer commits, and when: offsets that the program has chosen, and what is processed. Two kinds of threads send commits:
 *
 * - The committer (committer.c), one thread for all consumers, sends those that no caller waits for: Consumer#commit with async: true,
 *   and what is processed, every auto.commit.interval.ms. It receives their answers, whether the program polls or not.
 * - A job's thread (commit_job.c) sends a commit for which a caller waits.
 *
 * At most one request is in flight. The threads of jobs form a line, and each sends when its turn has come. Offsets for the committer
 * that arrive meanwhile wait behind the last turn of the line: a later offset replaces an earlier one of its partition, and the next
 * request has all of them. What is processed is read when it is sent. It waits until the line is empty.
 *
 * librdkafka's own timer for what is processed is not used. It sends a commit while an earlier one is in flight. If the coordinator
 * could not handle the earlier one, librdkafka repeats it after the later one, and the committed offset falls.
 *
 * With enable.auto.commit librdkafka sends a commit of its own when partitions are revoked. If an earlier commit were repeated after that one, the committed
 * offset would fall. So the thread that answers the revocation joins the line, for up to 5 s. It then sends the commits queued behind
 * its turn at once, because another member owns the partitions afterwards. In all other cases at most one request is in flight:
 * librdkafka puts a request off while it looks for the coordinator, and would send a second one before the first.
 *
 * Nothing can be sent after the group was left. So closing first waits for the queued commits, for up to half of its time, and then
 * takes a turn. While the member joins its group again, no thread sends (joining.c).
 */
#include "consume/consume.h"

enum { STALE_MEMBER_EPOCH = 113 };

void ps_async_commits_destroy(struct ps_async_commits *commits)
{
    if (commits->waiting) rd_kafka_topic_partition_list_destroy(commits->waiting);
    if (commits->sent) rd_kafka_topic_partition_list_destroy(commits->sent);
    pthread_mutex_destroy(&commits->lock);
}

bool ps_consumer_left(const struct ps_consumer *consumer)
{
    int64_t close_by_us = atomic_load(&consumer->client.close_by_us);
    return rd_kafka_consumer_closed(consumer->client.rk) || (close_by_us != 0 && ps_now_us() >= close_by_us);
}

/* With the lock. Sends the queued offsets, and keeps them, in case a broker asks for them again. */
static void send_waiting(struct ps_consumer *consumer)
{
    struct ps_async_commits *commits = &consumer->async_commits;
    if (!commits->waiting) return;
    rd_kafka_resp_err_t err;
    if (!ps_joining_commit(consumer, commits->waiting, commits->answers, &err)) return;
    if (err) {
        ps_consumer_commit_result(consumer, err, commits->waiting);
        ps_list_destroy(&commits->waiting);
        ps_commit_line_changed(&commits->work.line);
        return;
    }
    commits->on_their_way++;
    commits->sent_us = ps_now_us();
    commits->sent = ps_list_merge(commits->waiting, commits->sent);
    commits->waiting = NULL;
}

/* With the lock. librdkafka sends the offsets that it has stored and not committed yet. */
static void send_stored(struct ps_consumer *consumer)
{
    struct ps_async_commits *commits = &consumer->async_commits;
    int64_t due_us = atomic_exchange(&commits->stored_due_us, 0);
    rd_kafka_resp_err_t err;
    if (!ps_joining_commit(consumer, NULL, commits->answers, &err)) {
        atomic_store(&commits->stored_due_us, due_us);
        return;
    }
    commits->stored_asked = false;
    if (err) {
        ps_consumer_commit_result(consumer, err, NULL);
        return;
    }
    commits->on_their_way++;
    commits->sent_us = ps_now_us();
    commits->stored_sent = true;
}

static bool stored_is_due(const struct ps_async_commits *commits)
{
    int64_t due_us = atomic_load(&commits->stored_due_us);
    return due_us != 0 && ps_now_us() >= due_us;
}

/* With the lock. Also the offsets queued behind turns. */
static void take_all_waiting(struct ps_async_commits *commits)
{
    for (struct ps_commit_turn *turn = commits->turns; turn; turn = turn->next) {
        commits->waiting = ps_list_merge(turn->after, commits->waiting);
        turn->after = NULL;
    }
}

/* With the lock. */
static bool any_waiting(const struct ps_async_commits *commits)
{
    bool any = commits->waiting || commits->stored_asked;
    for (const struct ps_commit_turn *turn = commits->turns; turn && !any; turn = turn->next) any = turn->after != NULL;
    return any;
}

/* With the lock. */
static bool may_send(const struct ps_async_commits *commits)
{
    return commits->on_their_way == 0; /* M:commits_coalesced */
}

/* With the lock. The committer looks at what it may send now. If a request is in flight, it looks when the answer arrives. */
static void ring_committer(struct ps_async_commits *commits)
{
    if (commits->answers && may_send(commits)) ps_committer_ring(&commits->work);
}

/* With the lock. Offsets that could not be sent, as the member joins its group again, would be sent after other members have read on. */
static void drop_unsent(struct ps_consumer *consumer, const rd_kafka_topic_partition_list_t *revoked)
{
    rd_kafka_topic_partition_list_t *waiting = consumer->async_commits.waiting, *dropped = rd_kafka_topic_partition_list_new(1);
    for (int i = 0; waiting && i < revoked->cnt; i++) {
        const rd_kafka_topic_partition_t *place = &revoked->elems[i];
        const rd_kafka_topic_partition_t *unsent = rd_kafka_topic_partition_list_find(waiting, place->topic, place->partition);
        if (!unsent) continue;
        ps_copy_place(dropped, unsent);
        rd_kafka_topic_partition_list_del(waiting, place->topic, place->partition);
    }
    if (dropped->cnt > 0) ps_consumer_commit_result(consumer, RD_KAFKA_RESP_ERR_ILLEGAL_GENERATION, dropped);
    rd_kafka_topic_partition_list_destroy(dropped);
    if (waiting && waiting->cnt == 0) ps_list_destroy(&consumer->async_commits.waiting);
}

bool ps_async_commits_revoked(struct ps_consumer *consumer, const rd_kafka_topic_partition_list_t *revoked)
{
    struct ps_async_commits *commits = &consumer->async_commits;
    pthread_mutex_lock(&commits->lock);
    take_all_waiting(commits);
    send_waiting(consumer);
    bool asked = commits->stored_asked;
    if (asked) send_stored(consumer);
    bool stored_sent = asked && commits->stored_sent;
    drop_unsent(consumer, revoked);
    for (int i = 0; commits->sent && i < revoked->cnt; i++)
        rd_kafka_topic_partition_list_del(commits->sent, revoked->elems[i].topic, revoked->elems[i].partition);
    ring_committer(commits);
    ps_commit_line_changed(&commits->work.line);
    pthread_mutex_unlock(&commits->lock);
    return stored_sent;
}

/* ---- turns ---- */

void ps_consumer_marked(struct ps_consumer *consumer)
{
    if (atomic_load(&consumer->rebalance.hold_until_us)) ps_bell_ring(&consumer->bell);
}

/* The taking thread may wait for the turn of a revocation, other threads for those of their commits. */
static void line_changed(struct ps_consumer *consumer)
{
    ps_consumer_marked(consumer);
    ps_commit_line_changed(&consumer->async_commits.work.line);
}

/* With the lock. Owns the list. */
static void wait_behind_all(struct ps_async_commits *commits, rd_kafka_topic_partition_list_t *list)
{
    struct ps_commit_turn *last = commits->turns;
    while (last && last->next) last = last->next;
    if (last) last->after = ps_list_merge(list, last->after); /* M:async_commit_waits_behind */
    else commits->waiting = ps_list_merge(list, commits->waiting);
}

void ps_commit_turn_join(struct ps_consumer *consumer, struct ps_commit_turn *turn)
{
    struct ps_async_commits *commits = &consumer->async_commits;
    struct ps_commit_turn **link = &commits->turns;
    pthread_mutex_lock(&commits->lock);
    while (*link) link = &(*link)->next;
    *link = turn;
    pthread_mutex_unlock(&commits->lock);
}

enum { UNUSED_TURN_US = 100000 }; /* a turn that yields may stay unused so long */

/* With the lock. The first turn that has not passed. A turn that yields passes if no thread uses it soon. */
static struct ps_commit_turn *first_turn(const struct ps_async_commits *commits)
{
    struct ps_commit_turn *first = commits->turns;
    if (!first || !first->yields || commits->waiting || commits->on_their_way > 0) return first;
    if (!first->come_us) first->come_us = ps_now_us();
    return ps_now_us() - first->come_us < UNUSED_TURN_US ? first : first->next; /* M:turn_passes */
}

/* With the lock. False while a thread uses the turn that has passed the first one, and while offsets wait behind the first one. */
static bool is_next(const struct ps_async_commits *commits, const struct ps_commit_turn *turn)
{
    const struct ps_commit_turn *first = commits->turns;
    if (first == turn) return !turn->next || !turn->next->come;
    return first_turn(commits) == turn && !first->after; /* M:turn_keeps_order */
}

bool ps_commit_turn_has_come(struct ps_consumer *consumer, struct ps_commit_turn *turn)
{
    struct ps_async_commits *commits = &consumer->async_commits;
    pthread_mutex_lock(&commits->lock);
    /* M:commit_waits_for_async */
    bool idle = !commits->waiting && commits->on_their_way == 0 && !ps_consumer_joins(consumer);
    turn->come = idle && is_next(commits, turn); /* M:commit_waits_for_threads */
    bool has_come = turn->come;
    pthread_mutex_unlock(&commits->lock);
    return has_come;
}

void ps_commit_turn_leave(struct ps_consumer *consumer, struct ps_commit_turn *turn)
{
    struct ps_async_commits *commits = &consumer->async_commits;
    struct ps_commit_turn **link = &commits->turns;
    rd_kafka_topic_partition_list_t **before = &commits->waiting;
    pthread_mutex_lock(&commits->lock);
    for (; *link != turn; link = &(*link)->next) before = &(*link)->after;
    *link = turn->next;
    *before = ps_list_merge(turn->after, *before);
    ring_committer(commits);
    pthread_mutex_unlock(&commits->lock);
    line_changed(consumer);
}

/* Nothing wakes the thread when a turn that yields passes, when the caller of a job gives up, or when ps_client_hurry shortens the
 * time of a close. */
enum { LONGEST_SLEEP_US = 10 * 1000 };

void ps_commit_turn_sleep(struct ps_consumer *consumer, struct ps_commit_turn *turn, int64_t until_us)
{
    struct ps_commit_line *line = &consumer->async_commits.work.line;
    int64_t awake_us = ps_now_us() + LONGEST_SLEEP_US;
    atomic_fetch_add(&line->sleepers, 1);
    uint32_t changes = atomic_load(&line->changes);
    if (!ps_commit_turn_has_come(consumer, turn)) ps_word_sleep(&line->changes, changes, awake_us < until_us ? awake_us : until_us);
    atomic_fetch_sub(&line->sleepers, 1);
}

/* ---- the committer's part ---- */

/* `code`: 0: any error. */
static bool has_error(rd_kafka_event_t *answer, int code)
{
    const rd_kafka_topic_partition_list_t *list = rd_kafka_event_topic_partition_list(answer);
    int err = rd_kafka_event_error(answer);
    if (err && (!code || err == code)) return true;
    for (int i = 0; list && i < list->cnt; i++) {
        err = list->elems[i].err;
        if (err && (!code || err == code)) return true;
    }
    return false;
}

bool ps_commit_is_stale(rd_kafka_event_t *answer)
{
    return has_error(answer, STALE_MEMBER_EPOCH);
}

/* librdkafka repeats only its own commits when the member got a new epoch between request and answer. */
static bool to_be_repeated(const struct ps_consumer *consumer, rd_kafka_event_t *answer)
{
    const struct ps_async_commits *commits = &consumer->async_commits;
    bool sent = commits->stored_sent || (commits->sent && commits->sent->cnt > 0);
    bool passes = ps_commit_is_stale(answer) || ps_commit_refused(consumer, rd_kafka_event_error(answer), commits->sent_us);
    return sent && passes && commits->attempts < PS_COMMIT_ATTEMPTS;
}

static void answered(struct ps_consumer *consumer, rd_kafka_event_t *answer, bool open)
{
    struct ps_async_commits *commits = &consumer->async_commits;
    ps_consumer_note_committed(consumer, answer);
    pthread_mutex_lock(&commits->lock);
    if (commits->on_their_way == 0) { /* give_up has reported it */
        pthread_mutex_unlock(&commits->lock);
        return;
    }
    commits->on_their_way--;
    bool again = open && to_be_repeated(consumer, answer); /* M:commit_repeated */
    bool stored_failed = open && commits->stored_sent && has_error(answer, 0) &&
                         rd_kafka_event_error(answer) != RD_KAFKA_RESP_ERR__NO_OFFSET;
    commits->attempts = again ? commits->attempts + 1 : 0;
    if (again) {
        commits->waiting = ps_list_merge(commits->waiting, commits->sent);
        commits->sent = NULL;
        commits->again_us = ps_now_us() + PS_COMMIT_PAUSE_US;
    } else if (commits->on_their_way == 0) {
        ps_list_destroy(&commits->sent);
    }
    if (stored_failed && again) {
        commits->stored_asked = true;
        atomic_store(&commits->stored_due_us, commits->again_us);
    } else if (stored_failed && consumer->settings.commit_every_us) {
        atomic_store(&commits->stored_due_us, ps_now_us() + consumer->settings.commit_every_us);
    }
    if (commits->on_their_way == 0) commits->stored_sent = false;
    pthread_mutex_unlock(&commits->lock);
    line_changed(consumer);
    if (!again) ps_consumer_commit_result(consumer, rd_kafka_event_error(answer), rd_kafka_event_topic_partition_list(answer));
}

/* With the lock. */
static bool is_busy(const struct ps_async_commits *commits)
{
    return commits->waiting || commits->on_their_way > 0 || commits->turns;
}

/* Sends what waits, if nothing is on its way. False: nothing is left, and the next commit begins anew; `long_call` says how to
 * leave the client. */
static bool go_on(struct ps_consumer *consumer, bool *long_call)
{
    struct ps_async_commits *commits = &consumer->async_commits;
    pthread_mutex_lock(&commits->lock);
    struct ps_commit_turn *first = first_turn(commits);
    if (first != commits->turns) { /* the turn has passed, and what waits behind it goes on */
        commits->waiting = ps_list_merge(commits->turns->after, commits->waiting);
        commits->turns->after = NULL;
    }
    bool joins = ps_consumer_joins(consumer);
    if (may_send(commits) && !joins && ps_now_us() >= commits->again_us) send_waiting(consumer);
    if (may_send(commits) && !joins && !first && stored_is_due(commits)) send_stored(consumer);
    bool more = is_busy(commits) || atomic_load(&commits->stored_due_us);
    *long_call = commits->long_call;
    if (!more) {
        rd_kafka_queue_cb_event_enable(commits->answers, NULL, NULL);
        rd_kafka_queue_destroy(commits->answers);
        commits->answers = NULL;
        atomic_store(&commits->work.held, false);
        commits->long_call = false;
        commits->closing_us = 0;
    }
    pthread_mutex_unlock(&commits->lock);
    return more;
}

/* With the lock. When the member has joined its group again; 0: it does not join. The callbacks of joining.c store what they
 * change, and then read `held`. This function stores `held` first. So it sees the change, or the callback makes the committer
 * look again. */
static int64_t joined_us(struct ps_consumer *consumer)
{
    _Atomic bool *held = &consumer->async_commits.work.held;
    atomic_store(held, true);
    if (ps_consumer_joins(consumer)) return PS_FOREVER;
    atomic_store(held, false);
    return 0;
}

static int64_t earlier(int64_t one_us, int64_t other_us)
{
    return one_us < other_us ? one_us : other_us;
}

static int64_t later(int64_t one_us, int64_t other_us)
{
    return one_us < other_us ? other_us : one_us;
}

/* With the lock. When the first turn passes, which has not passed yet, if no thread uses it before. */
static int64_t passes_us(const struct ps_async_commits *commits, const struct ps_commit_turn *first)
{
    bool has_come = !commits->waiting && commits->on_their_way == 0;
    bool may_pass = has_come && first && first->yields;
    return may_pass ? first->come_us + UNUSED_TURN_US : PS_FOREVER;
}

enum { CLOSING_LOOK_US = 10 * 1000 };

/* When the committer may send something that it cannot send now. An answer, another commit and the end of a turn ring before. */
static int64_t next_us(struct ps_consumer *consumer)
{
    struct ps_async_commits *commits = &consumer->async_commits;
    /* Nothing rings when ps_client_hurry shortens the time, or when librdkafka has left the group. */
    if (atomic_load(&consumer->client.state) != PS_OPEN) return ps_now_us() + CLOSING_LOOK_US;
    int64_t due_us = PS_FOREVER;
    pthread_mutex_lock(&commits->lock);
    /* One look at the turns, as time goes on. If the first one has passed since go_on, then go_on has to look again. */
    const struct ps_commit_turn *first = first_turn(commits);
    bool passed = first != commits->turns;
    int64_t stored_due_us = first ? 0 : atomic_load(&commits->stored_due_us);
    atomic_store(&commits->work.held, false);
    if (may_send(commits) && (commits->waiting || stored_due_us)) {
        int64_t may_send_us = joined_us(consumer);
        if (commits->waiting) due_us = later(commits->again_us, may_send_us);
        if (stored_due_us) due_us = earlier(due_us, later(stored_due_us, may_send_us));
    }
    if (passed && commits->turns->after) due_us = 0;
    if (!passed) due_us = earlier(due_us, passes_us(commits, first));
    pthread_mutex_unlock(&commits->lock);
    return due_us;
}

void ps_async_commits_closing(struct ps_consumer *consumer)
{
    struct ps_async_commits *commits = &consumer->async_commits;
    pthread_mutex_lock(&commits->lock);
    if (commits->answers) ps_committer_ring(&commits->work);
    pthread_mutex_unlock(&commits->lock);
    ps_commit_line_changed(&commits->work.line); /* jobs end their waits */
}

/* Called by the committer after closing began; no new commits arrive. Returns false while commits remain to be sent in time. Stored
 * offsets do not count: librdkafka commits them when it leaves the group. */
static bool lets_close(struct ps_consumer *consumer)
{
    struct ps_async_commits *commits = &consumer->async_commits;
    int64_t now_us = ps_now_us(), close_by_us = atomic_load(&consumer->client.close_by_us); /* ps_client_hurry may shorten it */
    if (!commits->closing_us) commits->closing_us = now_us;
    int64_t begun_us = commits->closing_us;
    int64_t send_by_us = close_by_us == PS_FOREVER ? PS_FOREVER : begun_us + (close_by_us - begun_us) / 2;
    pthread_mutex_lock(&commits->lock);
    bool lets = !any_waiting(commits) || now_us >= send_by_us, late = lets && any_waiting(commits);
    if (lets) take_all_waiting(commits);
    rd_kafka_topic_partition_list_t *list = lets ? commits->waiting : NULL;
    if (lets) commits->waiting = NULL;
    if (lets) commits->stored_asked = false;
    if (!commits->stored_asked) atomic_store(&commits->stored_due_us, 0);
    pthread_mutex_unlock(&commits->lock);
    ps_commit_line_changed(&commits->work.line);
    if (late) ps_consumer_commit_result(consumer, RD_KAFKA_RESP_ERR__TIMED_OUT, list);
    ps_list_destroy(&list);
    return lets;
}

/* Reports commits whose answers did not arrive before the group was left. False: there are none. */
static bool give_up(struct ps_consumer *consumer)
{
    struct ps_async_commits *commits = &consumer->async_commits;
    pthread_mutex_lock(&commits->lock);
    rd_kafka_topic_partition_list_t *lost = commits->sent;
    bool any = commits->on_their_way > 0;
    commits->sent = NULL;
    commits->on_their_way = 0;
    pthread_mutex_unlock(&commits->lock);
    ps_commit_line_changed(&commits->work.line);
    if (any) ps_consumer_commit_result(consumer, RD_KAFKA_RESP_ERR__DESTROY, lost);
    ps_list_destroy(&lost);
    return any;
}

static bool take_answer(struct ps_consumer *consumer)
{
    const struct ps_async_commits *commits = &consumer->async_commits;
    /* Read before the poll: an answer that came before the group was left is then in the queue. */
    bool closed = commits->long_call && ps_consumer_left(consumer);
    rd_kafka_event_t *answer = rd_kafka_queue_poll(commits->answers, 0);
    if (!answer) return closed && give_up(consumer);
    answered(consumer, answer, !commits->long_call);
    rd_kafka_event_destroy(answer);
    return true;
}

/* Whether the committer works for the consumer. Only the committer ends this. */
static bool has_work(struct ps_async_commits *commits)
{
    pthread_mutex_lock(&commits->lock);
    bool has = commits->answers != NULL;
    pthread_mutex_unlock(&commits->lock);
    return has;
}

/* Once it has ended, the next work may begin at once: only locals are used afterwards. */
static enum ps_commits_state serve(struct ps_consumer *consumer, int64_t *due_us)
{
    struct ps_async_commits *commits = &consumer->async_commits;
    bool long_call;
    if (!has_work(commits)) return PS_COMMITS_NONE;
    do {
        if (!go_on(consumer, &long_call)) {
            if (long_call) ps_client_exit_long(&consumer->client);
            else ps_client_exit(&consumer->client);
            return PS_COMMITS_ENDED;
        }
        if (!long_call && atomic_load(&consumer->client.state) != PS_OPEN && lets_close(consumer)) {
            /* Closing leaves the group when no short call is in progress. So from here on nothing is sent. */
            commits->long_call = true;
            ps_client_become_long(&consumer->client);
        }
    } while (take_answer(consumer));
    *due_us = next_us(consumer);
    return PS_COMMITS_WAIT;
}

void ps_async_commits_init(struct ps_consumer *consumer)
{
    consumer->async_commits.work.consumer = consumer;
    consumer->async_commits.work.serve = serve;
    pthread_mutex_init(&consumer->async_commits.lock, NULL);
}

/* ---- the callers' part ---- */

/* Entered, and with the lock. The committer leaves the client. */
static int begin_work(struct ps_consumer *consumer)
{
    struct ps_async_commits *commits = &consumer->async_commits;
    rd_kafka_queue_t *answers = rd_kafka_queue_new(consumer->client.rk);
    int failed = ps_committer_begin(&commits->work);
    if (failed) {
        rd_kafka_queue_destroy(answers);
        return failed;
    }
    rd_kafka_queue_cb_event_enable(answers, ps_committer_ring_cb, &commits->work);
    commits->answers = answers;
    return 0;
}

/* Entered, and with the lock. The committer works for the consumer afterwards, unless it returns errno. Leaves the client, or the
 * committer does. */
static int let_committer_work(struct ps_consumer *consumer)
{
    bool works = consumer->async_commits.answers != NULL;
    int failed = works ? 0 : begin_work(consumer);
    if (works || failed) ps_client_exit(&consumer->client);
    return failed;
}

/* With the lock, and the committer works for the consumer. */
static void add_commit(struct ps_consumer *consumer, rd_kafka_topic_partition_list_t *list)
{
    struct ps_async_commits *commits = &consumer->async_commits;
    if (list) {
        wait_behind_all(commits, list);
        return;
    }
    commits->stored_asked = true;
    atomic_store(&commits->stored_due_us, ps_now_us());
}

int ps_consumer_commit_async(struct ps_consumer *consumer, rd_kafka_topic_partition_list_t *list)
{
    struct ps_async_commits *commits = &consumer->async_commits;
    int failed = -1;
    pthread_mutex_lock(&commits->lock);
    if (ps_client_enter(&consumer->client) && (failed = let_committer_work(consumer)) == 0) {
        add_commit(consumer, list);
        ring_committer(commits);
        list = NULL;
    }
    pthread_mutex_unlock(&commits->lock);
    ps_list_destroy(&list);
    return failed;
}

void ps_async_commits_stored(struct ps_consumer *consumer)
{
    struct ps_async_commits *commits = &consumer->async_commits;
    if (consumer->settings.commit_every_us == 0 || atomic_load(&commits->stored_due_us)) return;
    pthread_mutex_lock(&commits->lock);
    if (ps_client_enter(&consumer->client)) {
        atomic_store(&commits->stored_due_us, ps_now_us() + consumer->settings.commit_every_us);
        if (let_committer_work(consumer) != 0) atomic_store(&commits->stored_due_us, 0); /* the next ones try again */
        ring_committer(commits);
    }
    pthread_mutex_unlock(&commits->lock);
}

/* ---- what is processed ---- */

void ps_consumer_store(struct ps_consumer *consumer)
{
    if (!consumer->settings.grouped || !ps_ledger_store(&consumer->ledger, consumer->client.rk)) return;
    atomic_store(&consumer->settled, false);
    ps_async_commits_stored(consumer);
}

enum { STORE_EVERY_US = 1000 };

void ps_consumer_store_sometimes(struct ps_consumer *consumer)
{
    int64_t now_us = ps_now_us();
    if (now_us - consumer->stored_us < STORE_EVERY_US) return;
    consumer->stored_us = now_us;
    ps_consumer_store(consumer);
}

bool ps_consumer_has_committed(struct ps_consumer *consumer, const rd_kafka_topic_partition_list_t *places, uint64_t epoch)
{
    for (int i = 0; i < places->cnt; i++) {
        const rd_kafka_topic_partition_t *place = &places->elems[i];
        if (!ps_ledger_has_committed(&consumer->ledger, place->topic, place->partition, place->offset, epoch)) return false;
    }
    return true;
}

bool ps_consumer_keeps(struct ps_consumer *consumer, const rd_kafka_topic_partition_list_t *places, uint64_t epoch)
{
    struct ps_ledger *ledger = &consumer->ledger;
    for (int i = 0; places && i < places->cnt; i++) {
        const rd_kafka_topic_partition_t *place = &places->elems[i];
        bool keeps = ps_ledger_owns(ledger, place->topic, place->partition, epoch) || /* M:commit_knows_earlier_ones */
                     ps_ledger_has_committed(ledger, place->topic, place->partition, place->offset, epoch);
        if (!keeps) return false;
    }
    return true;
}
