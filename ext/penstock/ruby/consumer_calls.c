/*
 * Penstock::Native::ConsumerClient, continued: subscription, assignment, offsets, positions, and the group's metadata for a transactional
 * producer. Each call that blocks runs on a thread of its own (core/consume/consumer_jobs.c). So an interrupt ends the Ruby
 * thread's wait at once.
 */
#include "ruby/penstock.h"
#include <errno.h>
#include <string.h>

/* ---- lists of partitions: [[topic, partition, offset, leader epoch, metadata], ...]; the last two may be nil or missing ---- */

struct place {
    VALUE topic, metadata;
    int32_t partition, leader_epoch;
    int64_t offset;
};

rd_kafka_topic_partition_list_t *penstock_list_from(VALUE places)
{
    VALUE buffer;
    Check_Type(places, T_ARRAY);
    long size = RARRAY_LEN(places);
    struct place *parsed = ALLOCV_N(struct place, buffer, size + 1);
    for (long i = 0; i < size; i++) {
        VALUE place = rb_ary_entry(places, i), topic = rb_ary_entry(place, 0);
        StringValueCStr(topic);
        VALUE epoch = rb_ary_entry(place, 3), metadata = rb_ary_entry(place, 4);
        if (!NIL_P(metadata)) StringValue(metadata);
        parsed[i] = (struct place){ topic, metadata, NUM2INT(rb_ary_entry(place, 1)), NIL_P(epoch) ? -1 : NUM2INT(epoch),
                                    NUM2LL(rb_ary_entry(place, 2)) };
    }
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new((int)size); /* nothing raises from here on */
    for (long i = 0; i < size; i++) {
        rd_kafka_topic_partition_t *to = rd_kafka_topic_partition_list_add(list, RSTRING_PTR(parsed[i].topic), parsed[i].partition);
        to->offset = parsed[i].offset;
        ps_set_leader_epoch(to, parsed[i].leader_epoch);
        VALUE metadata = parsed[i].metadata;
        if (!NIL_P(metadata)) ps_set_metadata(to, RSTRING_PTR(metadata), (size_t)RSTRING_LEN(metadata));
    }
    RB_GC_GUARD(places);
    ALLOCV_END(buffer);
    return list;
}

static VALUE offset_or_nil(int64_t offset)
{
    return offset < 0 ? Qnil : LL2NUM(offset);
}

VALUE penstock_places_from(const rd_kafka_topic_partition_list_t *list)
{
    VALUE places = rb_ary_new();
    for (int i = 0; list && i < list->cnt; i++) {
        const rd_kafka_topic_partition_t *place = &list->elems[i];
        VALUE topic = penstock_name(place->topic);
        int32_t epoch = ps_leader_epoch(place);
        VALUE metadata = place->metadata_size ? penstock_text_of_metadata(place->metadata, place->metadata_size) : Qnil;
        rb_ary_push(places, rb_ary_new_from_args(5, topic, INT2NUM(place->partition), offset_or_nil(place->offset),
                                                 epoch < 0 ? Qnil : INT2NUM(epoch), metadata));
    }
    return places;
}

/* ---- blocking calls ---- */

struct asking {
    struct ps_consumer *consumer;
    struct ps_consumer_job *job;
    int64_t deadline_us;
    VALUE error_class;
    const char *what;
};

enum { LOOK_US = 250000 };

/* Reads librdkafka's reports about connections. If no thread polls, only the thread that waits for an answer reads them. */
static void notice(struct ps_consumer *consumer)
{
    if (!ps_client_enter(&consumer->client)) return;
    ps_consumer_notice(consumer);
    ps_client_exit(&consumer->client);
}

static bool await_answer(const struct asking *asking)
{
    struct ps_consumer *consumer = asking->consumer;
    for (;;) {
        int64_t until_us = penstock_earlier(asking->deadline_us, ps_now_us() + LOOK_US);
        if (penstock_wait(&asking->job->job.completion, until_us)) return true;
        if (until_us == asking->deadline_us) return false;
        int64_t end_us = atomic_load(&consumer->calls_end_us); /* a close that has begun since this call */
        if (end_us && ps_now_us() >= end_us && asking->job->call != PS_CONSUMER_ASSIGNMENT) return false;
        notice(consumer);
        bool done_anyway = asking->job->call == PS_CONSUMER_ASSIGN; /* then polls raise */
        if (!done_anyway) penstock_consumer_check_rejected(consumer);
    }
}

/* The coordinator is perhaps not asked at all while the group rejects the consumer. The reason is more useful than the addresses of
 * brokers. Returns if there is none. */
static void raise_group_error(const struct asking *asking, struct penstock_error_context *context)
{
    struct ps_problem problem;
    struct ps_consumer *consumer = asking->consumer;
    bool member = atomic_load(&consumer->subscribed) && !ps_consumer_wants_to_join(consumer);
    if (member || !ps_lasting_read(&consumer->group_error, &problem)) return;
    size_t size = strlen(problem.text);
    if (size > 0 && problem.text[size - 1] == '.') problem.text[size - 1] = '\0';
    context->group = penstock_consumer_group(consumer);
    context->reason = problem.err;
    penstock_raise(penstock_consume_timeout_error, context, "%s, as the consumer cannot use its group (%s)", asking->what, problem.text);
}

static VALUE ask_body(VALUE arg)
{
    struct asking *asking = (struct asking *)arg;
    const struct ps_consumer_job *job = asking->job;
    struct penstock_error_context context = penstock_no_context;
    context.client = &asking->consumer->client;

    bool done = await_answer(asking);
    context.err = done ? job->err : RD_KAFKA_RESP_ERR__TIMED_OUT;
    const rd_kafka_topic_partition_list_t *list = done ? job->list : NULL;
    bool commit = job->call == PS_CONSUMER_COMMIT || job->call == PS_CONSUMER_COMMIT_PROCESSED;
    if (commit && context.err == RD_KAFKA_RESP_ERR__NO_OFFSET) return Qnil; /* nothing new */

    for (int i = 0; list && i < list->cnt; i++) {
        if (!list->elems[i].err) continue;
        context.err = list->elems[i].err;
        context.topic = penstock_text(list->elems[i].topic);
        context.partition = list->elems[i].partition;
        break;
    }
    if (!context.err) return penstock_places_from(list);
    if (context.err == RD_KAFKA_RESP_ERR__DESTROY) penstock_raise_closed(&asking->consumer->client); /* by another thread */
    bool timed_out = context.err == RD_KAFKA_RESP_ERR__TIMED_OUT;
    if (timed_out || context.err == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN || context.err == RD_KAFKA_RESP_ERR__TRANSPORT) {
        notice(asking->consumer);
        penstock_raise_if_rejected(&asking->consumer->client, Qnil);
    }
    context.retriable = timed_out;
    if (timed_out && (commit || job->call == PS_CONSUMER_COMMITTED)) raise_group_error(asking, &context);
    penstock_raise(timed_out ? penstock_consume_timeout_error : asking->error_class, &context, "%s%s%s", asking->what,
                   done && *job->text ? ": " : "", done ? job->text : "");
}

static VALUE ask_ensure(VALUE arg)
{
    ps_job_abandon(&((struct asking *)arg)->job->job);
    return Qnil;
}

/* In ms; -1: no limit. librdkafka's own thread, not a broker, says what is assigned. */
static int64_t time_for(const struct ps_consumer *consumer, enum ps_consumer_call call, int64_t timeout)
{
    if (call == PS_CONSUMER_ASSIGNMENT) return timeout;
    int64_t end_us = atomic_load(&consumer->calls_end_us);
    int64_t left = end_us ? ps_remaining_ms(end_us) : -1;
    return left >= 0 && (timeout < 0 || left < timeout) ? left : timeout;
}

/* librdkafka observes the timeout of most of these calls, but a request that was sent has until socket.timeout.ms. So the wait
 * observes the timeout too. It lasts 50 ms longer, as librdkafka's error is more precise. */
static void start_asking(struct asking *asking, VALUE self, enum ps_consumer_call call, VALUE places, VALUE seconds,
                         uint64_t epoch, const char *what)
{
    int64_t timeout = penstock_seconds(seconds);
    struct ps_consumer *consumer = penstock_consumer_open(self);
    timeout = time_for(consumer, call, timeout);
    rd_kafka_topic_partition_list_t *list = NIL_P(places) ? NULL : penstock_list_from(places);
    bool commit = call == PS_CONSUMER_COMMIT || call == PS_CONSUMER_COMMIT_PROCESSED;

    *asking = (struct asking){
        .consumer = consumer,
        .deadline_us = timeout < 0 ? PS_FOREVER : ps_deadline_us(timeout + (commit ? 0 : 50)),
        .error_class = commit ? penstock_commit_error : penstock_consume_error,
        .what = what,
        .job = ps_consumer_start(consumer, call, list, timeout > INT32_MAX ? -1 : (int)timeout, epoch),
    };
    if (asking->job) return;
    int failed = errno;
    penstock_check_open(&consumer->client);
    rb_syserr_fail(failed ? failed : EAGAIN, "cannot start a thread for the consumer");
}

/* Returns places. */
static VALUE ask_since(VALUE self, enum ps_consumer_call call, VALUE places, uint64_t epoch, VALUE seconds, const char *what)
{
    struct asking asking;
    start_asking(&asking, self, call, places, seconds, epoch, what);
    VALUE answer = rb_ensure(ask_body, (VALUE)&asking, ask_ensure, (VALUE)&asking);
    RB_GC_GUARD(self);
    return answer;
}

static VALUE ask(VALUE self, enum ps_consumer_call call, VALUE places, VALUE seconds, const char *what)
{
    return ask_since(self, call, places, 0, seconds, what);
}

static VALUE consumer_call_subscribe(VALUE self, VALUE places)
{
    ask(self, PS_CONSUMER_SUBSCRIBE, places, Qnil, "the topics were not subscribed to");
    return Qnil;
}

static VALUE consumer_call_assign(VALUE self, VALUE places)
{
    ask(self, PS_CONSUMER_ASSIGN, places, Qnil, "the partitions were not assigned");
    return Qnil;
}

/* Returns those that librdkafka had not begun. */
static VALUE consumer_call_restart(VALUE self, VALUE places)
{
    return ask(self, PS_CONSUMER_RESTART, places, Qnil, "the partitions were not assigned again");
}

static VALUE consumer_call_assignment(VALUE self)
{
    return ask(self, PS_CONSUMER_ASSIGNMENT, Qnil, Qnil, "the assignment could not be read");
}

static const char *const not_committed = "the offsets were not committed";

static VALUE consumer_call_commit(VALUE self, VALUE places, VALUE timeout)
{
    ask(self, PS_CONSUMER_COMMIT, places, timeout, not_committed);
    return Qnil;
}

/* What is processed, if these places are held since `epoch`. Returns the places that were committed, or nil: there was nothing new. */
static VALUE consumer_call_commit_processed(VALUE self, VALUE places, VALUE epoch, VALUE timeout)
{
    return ask_since(self, PS_CONSUMER_COMMIT_PROCESSED, places, NUM2ULL(epoch), timeout, not_committed);
}

static rd_kafka_topic_partition_list_t *list_or_null(VALUE places)
{
    return NIL_P(places) ? NULL : penstock_list_from(places);
}

static VALUE ask_of_places(VALUE self, VALUE places, VALUE epoch,
                           bool (*question)(struct ps_consumer *, const rd_kafka_topic_partition_list_t *, uint64_t))
{
    struct ps_consumer *consumer = penstock_consumer_open(self);
    uint64_t number = NUM2ULL(epoch);
    rd_kafka_topic_partition_list_t *list = penstock_list_from(places);
    bool answer = question(consumer, list, number);
    rd_kafka_topic_partition_list_destroy(list);
    RB_GC_GUARD(self);
    return answer ? Qtrue : Qfalse;
}

static VALUE consumer_call_keeps(VALUE self, VALUE places, VALUE epoch)
{
    return ask_of_places(self, places, epoch, ps_consumer_keeps);
}

static VALUE consumer_call_has_committed(VALUE self, VALUE places, VALUE epoch)
{
    return ask_of_places(self, places, epoch, ps_consumer_has_committed);
}

/* nil: what is processed. The result goes to ps_consumer_commit_result. */
static VALUE consumer_call_commit_async(VALUE self, VALUE places)
{
    struct ps_consumer *consumer = penstock_consumer_open(self);
    int failed = ps_consumer_commit_async(consumer, list_or_null(places));
    if (failed < 0) penstock_raise_closed(&consumer->client);
    if (failed) rb_syserr_fail(failed, "cannot start a thread for the consumer");
    RB_GC_GUARD(self);
    return Qnil;
}

/* The number of the latest assignment. */
static VALUE consumer_call_epoch(VALUE self)
{
    return ULL2NUM(ps_ledger_epoch(&penstock_consumer_open(self)->ledger));
}

static VALUE consumer_call_committed(VALUE self, VALUE places, VALUE timeout)
{
    return ask(self, PS_CONSUMER_COMMITTED, places, timeout, "the committed offsets could not be read");
}

/* The places have, as offsets, times in ms, or librdkafka's numbers for the beginning and the end. */
static VALUE consumer_call_offsets(VALUE self, VALUE places, VALUE timeout)
{
    return ask(self, PS_CONSUMER_OFFSETS, places, timeout, "the offsets could not be read");
}

struct asking_both {
    VALUE self, beginnings, ends, timeout;
    struct asking first, second;
};

static VALUE ask_both_body(VALUE arg)
{
    struct asking_both *both = (struct asking_both *)arg;
    static const char *const what = "the watermarks could not be read";
    start_asking(&both->first, both->self, PS_CONSUMER_OFFSETS, both->beginnings, both->timeout, 0, what);
    start_asking(&both->second, both->self, PS_CONSUMER_OFFSETS, both->ends, both->timeout, 0, what);
    VALUE beginnings = ask_body((VALUE)&both->first);
    return rb_assoc_new(beginnings, ask_body((VALUE)&both->second));
}

static VALUE ask_both_ensure(VALUE arg)
{
    struct asking_both *both = (struct asking_both *)arg;
    if (both->first.job) ask_ensure((VALUE)&both->first);
    if (both->second.job) ask_ensure((VALUE)&both->second);
    return Qnil;
}

/* Returns both lists of places. Both requests are on their way at once: a broker answers a connection's requests one after the
 * other, and the wait for messages that are to be fetched (fetch.wait.max.ms) is one of them. */
static VALUE consumer_call_watermarks(VALUE self, VALUE beginnings, VALUE ends, VALUE timeout)
{
    struct asking_both both = { .self = self, .beginnings = beginnings, .ends = ends, .timeout = timeout };
    VALUE answer = rb_ensure(ask_both_body, (VALUE)&both, ask_both_ensure, (VALUE)&both);
    RB_GC_GUARD(self);
    return answer;
}

static VALUE consumer_call_partitions(VALUE self, VALUE places, VALUE timeout)
{
    return ask(self, PS_CONSUMER_PARTITIONS, places, timeout, "the partitions could not be read");
}

/* What librdkafka knows without asking: [first offset or nil, next offset or nil]. */
static VALUE consumer_call_cached_watermarks(VALUE self, VALUE topic, VALUE partition)
{
    struct ps_consumer *consumer = penstock_consumer_open(self);
    const char *name = StringValueCStr(topic);
    int32_t number = NUM2INT(partition);
    int64_t low = -1, high = -1;
    if (!ps_client_enter(&consumer->client)) penstock_raise_closed(&consumer->client);
    rd_kafka_get_watermark_offsets(consumer->client.rk, name, number, &low, &high);
    ps_client_exit(&consumer->client);
    RB_GC_GUARD(self);
    return rb_ary_new_from_args(2, offset_or_nil(low), offset_or_nil(high));
}

enum { PLACE_TOPIC, PLACE_PARTITION, PLACE_FIRST, PLACE_AFTER, PLACE_EPOCH }; /* of a place in a batch */

static VALUE consumer_call_seek(VALUE self, VALUE places, VALUE timeout)
{
    ask(self, PS_CONSUMER_SEEK, places, timeout, "the position was not changed");
    return Qnil;
}

static VALUE consumer_call_seek_back(VALUE self, VALUE places, VALUE timeout)
{
    ask(self, PS_CONSUMER_SEEK_BACK, places, timeout, "the position was not changed");
    return Qnil;
}

/* Returns the places that the consumer has held since `epoch`. */
static VALUE consumer_call_rewind(VALUE self, VALUE places, VALUE epoch, VALUE timeout)
{
    return ask_since(self, PS_CONSUMER_REWIND, places, NUM2ULL(epoch), timeout, "the position was not changed");
}

void penstock_consumer_rewind(VALUE self, const struct ps_fetched *fetched)
{
    VALUE places = penstock_places_in(fetched), starts = rb_ary_new();
    for (long i = 0; i < RARRAY_LEN(places); i++) rb_ary_push(starts, rb_ary_subseq(RARRAY_AREF(places, i), 0, PLACE_AFTER));
    if (RARRAY_LEN(starts) > 0) consumer_call_rewind(self, starts, ULL2NUM(fetched->epoch), INT2FIX(5));
}

struct passing {
    struct ps_consumer *consumer;
    const char *topic;
    int32_t partition;
    int64_t passed;
};

static void *passed_nogvl(void *arg)
{
    struct passing *passing = arg;
    if (!ps_client_enter(&passing->consumer->client)) return NULL;
    passing->passed = ps_consumer_passed(passing->consumer, passing->topic, passing->partition);
    ps_client_exit(&passing->consumer->client);
    return NULL;
}

/* An offset or nil; see ps_consumer_passed. Waits for up to 10 ms. */
static VALUE consumer_call_passed(VALUE self, VALUE topic, VALUE partition)
{
    struct passing passing = { penstock_consumer_open(self), StringValueCStr(topic), NUM2INT(partition), -1 };
    penstock_nogvl_now(passed_nogvl, &passing);
    RB_GC_GUARD(topic);
    RB_GC_GUARD(self);
    return offset_or_nil(passing.passed);
}

static VALUE consumer_call_pause(VALUE self, VALUE places)
{
    ask(self, PS_CONSUMER_PAUSE, places, Qnil, "the partitions were not paused");
    return Qnil;
}

static VALUE consumer_call_resume(VALUE self, VALUE places)
{
    ask(self, PS_CONSUMER_RESUME, places, Qnil, "the partitions were not resumed");
    return Qnil;
}

static VALUE consumer_call_paused(VALUE self)
{
    struct ps_consumer *consumer = penstock_consumer_open(self);
    rd_kafka_topic_partition_list_t *list = ps_ledger_paused(&consumer->ledger, NULL);
    VALUE places = penstock_places_from(list);
    rd_kafka_topic_partition_list_destroy(list);
    return places;
}

static VALUE consumer_call_position(VALUE self, VALUE topic, VALUE partition)
{
    struct ps_consumer *consumer = penstock_consumer_open(self);
    return offset_or_nil(ps_ledger_position(&consumer->ledger, StringValueCStr(topic), NUM2INT(partition)));
}

/* The next offset, :beginning or :end if reading began there and nothing was polled, or nil; see ps_ledger_reached. */
static VALUE consumer_call_reached(VALUE self, VALUE topic, VALUE partition)
{
    struct ps_consumer *consumer = penstock_consumer_open(self);
    int64_t reached = ps_ledger_reached(&consumer->ledger, StringValueCStr(topic), NUM2INT(partition));
    if (reached == RD_KAFKA_OFFSET_BEGINNING) return ID2SYM(rb_intern("beginning"));
    return reached == RD_KAFKA_OFFSET_END ? ID2SYM(rb_intern("end")) : offset_or_nil(reached);
}

/* ---- marks ---- */

/* Without it, librdkafka would get the offsets only with the next poll. */
static void store(struct ps_consumer *consumer)
{
    if (!ps_client_enter(&consumer->client)) return; /* closing has given librdkafka what was marked before */
    ps_consumer_store(consumer);
    ps_consumer_marked(consumer);
    ps_client_exit(&consumer->client);
}

/* The group has removed the consumer, and no thread has met the event yet. */
static bool removed_from_group(struct ps_consumer *consumer)
{
    if (!ps_client_enter(&consumer->client)) return false;
    bool removed = rd_kafka_assignment_lost(consumer->client.rk);
    ps_client_exit(&consumer->client);
    return removed;
}

static VALUE mark_message(VALUE self, VALUE message)
{
    struct ps_consumer *consumer = penstock_consumer_open(self);
    const struct ps_record *record = penstock_message_record(message);
    const struct ps_fetched *fetched = record->fetched;
    bool marked = !removed_from_group(consumer) &&
                  ps_ledger_mark(&consumer->ledger, fetched->topics[record->topic], record->partition, record->offset,
                                 record->leader_epoch, fetched->epoch);
    store(consumer);
    RB_GC_GUARD(message);
    return marked ? Qtrue : fetched->epoch ? Qfalse : Qnil;
}

/* The same for the last message of each partition. */
static VALUE mark_batch(VALUE self, VALUE batch)
{
    struct ps_consumer *consumer = penstock_consumer_open(self);
    const struct ps_fetched *fetched = penstock_batch_fetched(batch);
    if (removed_from_group(consumer)) return Qfalse;
    bool marked = true;
    for (size_t i = 0; i < fetched->count; i++) {
        const struct ps_record *record = &fetched->records[i], *after = record + 1;
        bool followed = i + 1 < fetched->count && after->partition == record->partition && after->topic == record->topic;
        if (followed) continue;
        marked &= ps_ledger_mark(&consumer->ledger, fetched->topics[record->topic], record->partition, record->offset,
                                 record->leader_epoch, fetched->epoch);
    }
    store(consumer);
    RB_GC_GUARD(batch);
    return marked ? Qtrue : Qfalse;
}

/* A Message or Batch. False: another member may have the partition now, or one of the batch's. nil: a program made the message. */
VALUE penstock_consumer_mark(VALUE self, VALUE what)
{
    return penstock_is_batch(what) ? mark_batch(self, what) : mark_message(self, what);
}

static bool owns(struct ps_consumer *consumer, const struct ps_record *record)
{
    const struct ps_fetched *fetched = record->fetched;
    return ps_ledger_owns(&consumer->ledger, fetched->topics[record->topic], record->partition, fetched->epoch) &&
           !removed_from_group(consumer);
}

static bool owns_all(struct ps_consumer *consumer, const struct ps_fetched *fetched)
{
    bool owned = true;
    for (size_t i = 0; owned && i < fetched->count; i++) {
        const struct ps_record *record = &fetched->records[i];
        bool repeated = i > 0 && record[-1].partition == record->partition && record[-1].topic == record->topic;
        owned = repeated || owns(consumer, record);
    }
    return owned;
}

/* A Message, or all of a Batch's partitions. */
static VALUE consumer_call_owns(VALUE self, VALUE what)
{
    struct ps_consumer *consumer = penstock_consumer_open(self);
    bool owned = penstock_is_batch(what) ? owns_all(consumer, penstock_batch_fetched(what))
                                         : owns(consumer, penstock_message_record(what));
    RB_GC_GUARD(what);
    return owned ? Qtrue : Qfalse;
}

/* Everything that was polled is processed. */
static VALUE consumer_call_mark_all(VALUE self)
{
    struct ps_consumer *consumer = penstock_consumer_open(self);
    penstock_rewind_unreceived(self, consumer);
    ps_ledger_finish(&consumer->ledger, 0);
    store(consumer);
    RB_GC_GUARD(self);
    return Qnil;
}

/* [topic, partition, offset after it, leader epoch] of a Message */
static VALUE s_place_of(VALUE klass, VALUE message)
{
    const struct ps_record *record = penstock_message_record(message);
    VALUE topic = penstock_name(record->fetched->topics[record->topic]);
    VALUE epoch = record->leader_epoch < 0 ? Qnil : INT2NUM(record->leader_epoch);
    VALUE place = rb_ary_new_from_args(4, topic, INT2NUM(record->partition), LL2NUM(record->offset + 1), epoch);
    RB_GC_GUARD(message);
    return place;
}

/* ---- transactions and rewinding ---- */

/* The place of a message's partition, from the latest on: a batch has few, each for many messages in a row. nil: a new one. */
static VALUE place_in(VALUE places, VALUE topic, int32_t partition)
{
    for (long i = RARRAY_LEN(places) - 1; i >= 0; i--) {
        VALUE place = RARRAY_AREF(places, i);
        if (RARRAY_AREF(place, PLACE_PARTITION) == INT2NUM(partition) && RARRAY_AREF(place, PLACE_TOPIC) == topic) return place;
    }
    return Qnil;
}

VALUE penstock_places_in(const struct ps_fetched *fetched)
{
    VALUE places = rb_ary_new(), names = rb_ary_new(), place = Qnil;
    const struct ps_record *before = NULL;
    for (int i = 0; i < fetched->topic_count; i++) rb_ary_push(names, penstock_name(fetched->topics[i]));
    for (size_t i = 0; i < fetched->count; i++) {
        const struct ps_record *record = &fetched->records[i];
        VALUE topic = RARRAY_AREF(names, record->topic);
        if (!before || before->partition != record->partition || before->topic != record->topic) {
            place = place_in(places, topic, record->partition);
            if (NIL_P(place)) {
                place = rb_ary_new_from_args(5, topic, INT2NUM(record->partition), LL2NUM(record->offset), Qnil, Qnil);
                rb_ary_push(places, place);
            }
        }
        before = record;
        rb_ary_store(place, PLACE_AFTER, LL2NUM(record->offset + 1));
        rb_ary_store(place, PLACE_EPOCH, record->leader_epoch < 0 ? Qnil : INT2NUM(record->leader_epoch));
    }
    return places;
}

/* [[topic, partition, offset of its first message, offset after its last message, leader epoch of that or nil], ...] of a Batch */
static VALUE s_places_of(VALUE klass, VALUE batch)
{
    VALUE places = penstock_places_in(penstock_batch_fetched(batch));
    RB_GC_GUARD(batch);
    return places;
}

/* The number of the assignment in which a Message was taken. 0: a program made it. */
static VALUE s_epoch_of(VALUE klass, VALUE message)
{
    VALUE epoch = ULL2NUM(penstock_message_record(message)->fetched->epoch);
    RB_GC_GUARD(message);
    return epoch;
}

/*
 * Which of these places of a batch the consumer has held since `epoch`. None if the group has removed this member, also if the
 * program has not polled the revocation yet.
 */
static VALUE consumer_call_held(VALUE self, VALUE places, VALUE epoch)
{
    struct ps_consumer *consumer = penstock_consumer_open(self);
    VALUE held = rb_ary_new();
    uint64_t since = NUM2ULL(epoch);
    if (!ps_client_enter(&consumer->client)) return held;
    bool lost = rd_kafka_assignment_lost(consumer->client.rk); /* M:lost_assignment_commits_nothing */
    ps_client_exit(&consumer->client);
    for (long i = 0; !lost && i < RARRAY_LEN(places); i++) {
        VALUE place = rb_ary_entry(places, i), topic = rb_ary_entry(place, PLACE_TOPIC);
        int64_t last = NUM2LL(rb_ary_entry(place, PLACE_AFTER)) - 1;
        if (ps_ledger_holds(&consumer->ledger, StringValueCStr(topic), NUM2INT(rb_ary_entry(place, PLACE_PARTITION)), last, since))
            rb_ary_push(held, place);
    }
    return held;
}

/* The epoch of the assignment in which the partition began where librdkafka found it. 0: the program has chosen another place, or
 * no message of it was polled. */
static VALUE consumer_call_began_itself(VALUE self, VALUE topic, VALUE partition)
{
    struct ps_consumer *consumer = penstock_consumer_open(self);
    return ULL2NUM(ps_ledger_began_itself(&consumer->ledger, StringValueCStr(topic), NUM2INT(partition)));
}

/* The first place before whose first message there are others that were polled and are not processed. nil: none. */
static VALUE consumer_call_open_before(VALUE self, VALUE places)
{
    struct ps_consumer *consumer = penstock_consumer_open(self);
    for (long i = 0; i < RARRAY_LEN(places); i++) {
        VALUE place = rb_ary_entry(places, i), topic = rb_ary_entry(place, PLACE_TOPIC);
        if (ps_ledger_open_before(&consumer->ledger, StringValueCStr(topic), NUM2INT(rb_ary_entry(place, PLACE_PARTITION)),
                                  NUM2LL(rb_ary_entry(place, PLACE_FIRST)))) return place;
    }
    return Qnil;
}

/* ---- rebalances ---- */

struct telling {
    VALUE self;
    struct ps_consumer *consumer;
    const char *name;                            /* NULL: closing has answered */
    rd_kafka_topic_partition_list_t *partitions; /* owned; may be NULL, as `start` */
    rd_kafka_topic_partition_list_t *start;
    bool later; /* the next poll has to answer */
};

/* Copies the event: from now on, closing may answer and destroy it. */
static void *read_nogvl(void *arg)
{
    struct telling *telling = arg;
    struct ps_consumer *consumer = telling->consumer;
    pthread_mutex_lock(&consumer->taking);
    rd_kafka_event_t *event = consumer->rebalance.event;
    if (event) {
        bool assigned = rd_kafka_event_error(event) == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS;
        telling->name = assigned ? "assigned" : consumer->rebalance.lost ? "lost" : "revoked";
        telling->partitions = ps_plain_copy(rd_kafka_event_topic_partition_list(event));
    }
    pthread_mutex_unlock(&consumer->taking);
    return NULL;
}

static void set_start(struct telling *telling, VALUE places)
{
    if (NIL_P(places)) return;
    rd_kafka_topic_partition_list_t *former = telling->start;
    telling->start = penstock_list_from(places);
    if (former) rd_kafka_topic_partition_list_destroy(former);
}

static VALUE tell_body(VALUE arg)
{
    struct telling *telling = (struct telling *)arg;
    if (!ps_client_enter(&telling->consumer->client)) return Qnil;
    penstock_nogvl_now(read_nogvl, telling);
    ps_client_exit(&telling->consumer->client);
    if (!telling->name) return Qnil;
    VALUE name = ID2SYM(rb_intern(telling->name)), places = penstock_places_from(telling->partitions);
    VALUE callbacks = penstock_consumer_callbacks(telling->self);
    /* M:unknown_start_answers_later */
    telling->later = true; /* an exception, an interrupt too: it is not known where to start */
    VALUE configured = rb_funcall(callbacks, rb_intern("configured_starts"), 2, name, places);
    telling->later = false;
    set_start(telling, configured); /* also if the listener raises */
    set_start(telling, rb_funcall(callbacks, rb_intern("rebalanced"), 3, name, places, configured));
    return Qnil;
}

static void *answer_nogvl(void *arg)
{
    const struct telling *telling = arg;
    if (telling->later) ps_consumer_answer_later(telling->consumer);
    else ps_consumer_answer(telling->consumer, telling->start);
    return NULL;
}

static VALUE tell_ensure(VALUE arg)
{
    struct telling *telling = (struct telling *)arg;
    struct ps_client *client = &telling->consumer->client;
    /* A fork child, or a closing consumer, has nothing to answer. */
    if (!ps_client_inherited(client) && ps_client_enter(client)) {
        penstock_nogvl_now(answer_nogvl, telling);
        ps_client_exit(client);
    }
    if (telling->start) rd_kafka_topic_partition_list_destroy(telling->start);
    if (telling->partitions) rd_kafka_topic_partition_list_destroy(telling->partitions);
    return Qnil;
}

void penstock_tell_rebalance(VALUE self, struct ps_consumer *consumer)
{
    struct telling telling = { .self = self, .consumer = consumer };
    rb_ensure(tell_body, (VALUE)&telling, tell_ensure, (VALUE)&telling);
    RB_GC_GUARD(self);
}

/* ---- for transactional producers ---- */

struct group_call {
    struct ps_consumer *consumer;
    rd_kafka_consumer_group_metadata_t *metadata;
};

static void *group_nogvl(void *arg)
{
    struct group_call *call = arg;
    call->metadata = rd_kafka_consumer_group_metadata(call->consumer->client.rk);
    return NULL;
}

rd_kafka_consumer_group_metadata_t *penstock_consumer_group_metadata(VALUE self)
{
    struct group_call call = { .consumer = penstock_consumer_open(self) };
    struct penstock_error_context context = penstock_no_context;
    context.client = &call.consumer->client;
    if (!call.consumer->settings.grouped)
        penstock_raise(penstock_config_error, &context, "committing a consumer's offsets needs config.kafka[\"group.id\"]");
    if (!ps_client_enter(&call.consumer->client)) penstock_raise_closed(&call.consumer->client);
    penstock_nogvl_now(group_nogvl, &call);
    ps_client_exit(&call.consumer->client);
    if (!call.metadata) penstock_raise(penstock_consume_error, &context, "the consumer's group is not known");
    return call.metadata;
}

/* Returns a copy in librdkafka's binary form. */
static VALUE consumer_group_metadata(VALUE self)
{
    rd_kafka_consumer_group_metadata_t *metadata = penstock_consumer_group_metadata(self);
    void *bytes = NULL;
    size_t size = 0;
    rd_kafka_error_t *error = rd_kafka_consumer_group_metadata_write(metadata, &bytes, &size);
    rd_kafka_consumer_group_metadata_destroy(metadata);
    if (error) {
        struct penstock_error_context context = penstock_no_context;
        context.err = rd_kafka_error_code(error);
        rd_kafka_error_destroy(error);
        penstock_raise(penstock_consume_error, &context, "the group's metadata could not be written");
    }
    VALUE string = rb_str_new(bytes, (long)size);
    rd_kafka_mem_free(NULL, bytes);
    return string;
}

/* ---- holding back revocations ---- */

/* Before it opens. A revocation then waits for end_hold, for config.hold_rebalances at most. */
static VALUE consumer_call_hold_always(VALUE self)
{
    penstock_consumer_get(self)->settings.holds_always = true;
    return Qnil;
}

static VALUE consumer_call_end_hold(VALUE self)
{
    ps_consumer_end_hold(penstock_consumer_get(self));
    RB_GC_GUARD(self);
    return Qnil;
}

/* ---- membership ---- */

static void *membership_nogvl(void *arg)
{
    ps_consumer_membership(arg);
    return NULL;
}

/* [state, generation, member id, why it could not join] */
static VALUE consumer_call_membership(VALUE self)
{
    struct ps_membership membership = { .consumer = penstock_consumer_open(self) };
    if (!ps_client_enter(&membership.consumer->client)) penstock_raise_closed(&membership.consumer->client);
    penstock_nogvl_now(membership_nogvl, &membership);
    ps_client_exit(&membership.consumer->client);
    VALUE generation = membership.generation < 0 ? Qnil : INT2NUM(membership.generation);
    VALUE id = *membership.member_id ? penstock_text(membership.member_id) : Qnil;
    VALUE error = membership.failed ? penstock_text(membership.problem.text) : Qnil;
    return rb_ary_new_from_args(4, ID2SYM(rb_intern(membership.state)), generation, id, error);
}

void penstock_consumer_calls_init(VALUE client_class)
{
    rb_define_method(client_class, "membership", consumer_call_membership, 0);
    rb_define_method(client_class, "group_metadata", consumer_group_metadata, 0);
    rb_define_method(client_class, "subscribe", consumer_call_subscribe, 1);
    rb_define_method(client_class, "assign_places", consumer_call_assign, 1);
    rb_define_method(client_class, "restart", consumer_call_restart, 1);
    rb_define_method(client_class, "assignment", consumer_call_assignment, 0);
    rb_define_method(client_class, "commit", consumer_call_commit, 2);
    rb_define_method(client_class, "commit_processed", consumer_call_commit_processed, 3);
    rb_define_method(client_class, "keeps?", consumer_call_keeps, 2);
    rb_define_method(client_class, "committed?", consumer_call_has_committed, 2);
    rb_define_method(client_class, "commit_async", consumer_call_commit_async, 1);
    rb_define_method(client_class, "epoch", consumer_call_epoch, 0);
    rb_define_method(client_class, "committed_offsets", consumer_call_committed, 2);
    rb_define_method(client_class, "offsets", consumer_call_offsets, 2);
    rb_define_method(client_class, "watermarks", consumer_call_watermarks, 3);
    rb_define_method(client_class, "partitions", consumer_call_partitions, 2);
    rb_define_method(client_class, "cached_watermarks", consumer_call_cached_watermarks, 2);
    rb_define_method(client_class, "reached", consumer_call_reached, 2);
    rb_define_method(client_class, "passed", consumer_call_passed, 2);
    rb_define_method(client_class, "seek", consumer_call_seek, 2);
    rb_define_method(client_class, "seek_back", consumer_call_seek_back, 2);
    rb_define_method(client_class, "rewind", consumer_call_rewind, 3);
    rb_define_method(client_class, "held", consumer_call_held, 2);
    rb_define_method(client_class, "began_itself", consumer_call_began_itself, 2);
    rb_define_method(client_class, "open_before", consumer_call_open_before, 1);
    rb_define_method(client_class, "position", consumer_call_position, 2);
    rb_define_method(client_class, "pause", consumer_call_pause, 1);
    rb_define_method(client_class, "resume", consumer_call_resume, 1);
    rb_define_method(client_class, "paused", consumer_call_paused, 0);
    rb_define_method(client_class, "mark", penstock_consumer_mark, 1);
    rb_define_method(client_class, "owns?", consumer_call_owns, 1);
    rb_define_method(client_class, "hold_always", consumer_call_hold_always, 0);
    rb_define_method(client_class, "end_hold", consumer_call_end_hold, 0);
    rb_define_method(client_class, "mark_all", consumer_call_mark_all, 0);
    rb_define_singleton_method(client_class, "place_of", s_place_of, 1);
    rb_define_singleton_method(client_class, "places_of", s_places_of, 1);
    rb_define_singleton_method(client_class, "epoch_of", s_epoch_of, 1);
}
