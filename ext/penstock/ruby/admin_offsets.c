/*
 * Penstock::Native::AdminClient, continued: offsets of partitions, deleting records, electing leaders. See admin_client.c.
 */
#include "ruby/penstock.h"

/* [topic, partition, offset or nil, leader epoch or nil, metadata or nil, error or nil] */
static VALUE place_to_ruby(const struct ps_admin *admin, const rd_kafka_topic_partition_t *place, const char *text, VALUE group)
{
    int32_t epoch = ps_leader_epoch(place);
    VALUE metadata = place->metadata_size ? penstock_text_of_metadata(place->metadata, place->metadata_size) : Qnil;
    return rb_ary_new_from_args(6, penstock_name(place->topic), INT2NUM(place->partition),
                                place->offset < 0 ? Qnil : LL2NUM(place->offset), epoch < 0 ? Qnil : INT2NUM(epoch), metadata,
                                penstock_admin_place_error(admin, place->err, text, group, place->topic, place->partition));
}

VALUE penstock_admin_places(const struct ps_admin *admin, const rd_kafka_topic_partition_list_t *list, VALUE group)
{
    int count = list ? list->cnt : 0;
    VALUE rows = rb_ary_new_capa(count);
    for (int i = 0; i < count; i++) {
        if (list->elems[i].err == PENSTOCK_ADMIN_UNANSWERED) continue;
        rb_ary_push(rows, place_to_ruby(admin, &list->elems[i], NULL, group));
        if (i % 256 == 255) rb_thread_check_ints(); /* lets other threads run, if there are many partitions */
    }
    return rows;
}

/* ---- offsets: a request for each row; places whose offsets are times in ms, or librdkafka's numbers ---- */

static VALUE offsets_of_job(const struct ps_admin_job *job, VALUE arg)
{
    return penstock_admin_places(job->admin, job->list, Qnil);
}

/* As rd_kafka_offsets_for_times: -1 and -2 are times, too. Isolation is the client's. */
static VALUE client_offsets_for_times(VALUE self, VALUE places, VALUE options)
{
    return penstock_admin_question(self, PS_ADMIN_OFFSETS, penstock_list_from(places), options, offsets_of_job, Qnil);
}

#ifdef HAVE_RD_KAFKA_LISTOFFSETS
static void *list_of_row(VALUE row, char *errstr, size_t size)
{
    return penstock_list_from(rb_ary_entry(row, 0));
}

static void list_dispose(void *list)
{
    rd_kafka_topic_partition_list_destroy(list);
}

static void list_offsets_submit(rd_kafka_t *rk, void **items, size_t count, const rd_kafka_AdminOptions_t *options,
                                rd_kafka_queue_t *queue)
{
    rd_kafka_ListOffsets(rk, items[0], options, queue);
}

/* If a leader does not answer, librdkafka reports no error for its partitions, and no offset either. */
static VALUE listed_offset(const struct ps_admin *admin, const rd_kafka_topic_partition_t *place)
{
    if (place->err || place->offset != RD_KAFKA_OFFSET_INVALID) return place_to_ruby(admin, place, NULL, Qnil);
    VALUE row = place_to_ruby(admin, place, NULL, Qnil);
    rb_ary_store(row, 5, penstock_admin_error_of(admin, RD_KAFKA_RESP_ERR__TIMED_OUT, "the partition's leader did not answer",
                                                 place->topic, place->partition));
    return row;
}

static VALUE list_offsets_read(const struct ps_admin *admin, rd_kafka_event_t *event)
{
    size_t count;
    const rd_kafka_ListOffsetsResultInfo_t **infos =
        rd_kafka_ListOffsets_result_infos(rd_kafka_event_ListOffsets_result(event), &count);
    VALUE rows = rb_ary_new_capa((long)count);
    for (size_t i = 0; i < count; i++) {
        rb_ary_push(rows, listed_offset(admin, rd_kafka_ListOffsetsResultInfo_topic_partition(infos[i])));
        if (i % 256 == 255) rb_thread_check_ints(); /* lets other threads run, if there are many partitions */
    }
    return rows;
}

static const struct penstock_admin_request list_offsets = {
    .op = RD_KAFKA_ADMIN_OP_LISTOFFSETS, .each = true, .make = list_of_row, .dispose = list_dispose,
    .submit = list_offsets_submit, .read = list_offsets_read,
};

static VALUE client_list_offsets(VALUE self, VALUE rows, VALUE options)
{
    return penstock_admin_ask(self, &list_offsets, rows, options);
}
#endif

/* ---- delete records: one row, with the places before whose offsets records are deleted ---- */

static void *deleted_records(VALUE row, char *errstr, size_t size)
{
    rd_kafka_topic_partition_list_t *list = penstock_list_from(rb_ary_entry(row, 0));
    rd_kafka_DeleteRecords_t *item = rd_kafka_DeleteRecords_new(list);
    rd_kafka_topic_partition_list_destroy(list);
    return item;
}

static void deleted_records_dispose(void *item)
{
    rd_kafka_DeleteRecords_destroy(item);
}

static void delete_records_submit(rd_kafka_t *rk, void **items, size_t count, const rd_kafka_AdminOptions_t *options,
                                  rd_kafka_queue_t *queue)
{
    rd_kafka_DeleteRecords(rk, (rd_kafka_DeleteRecords_t **)items, count, options, queue);
}

static VALUE delete_records_read(const struct ps_admin *admin, rd_kafka_event_t *event)
{
    return penstock_admin_places(admin, rd_kafka_DeleteRecords_result_offsets(rd_kafka_event_DeleteRecords_result(event)), Qnil);
}

static const struct penstock_admin_request delete_records = {
    .op = RD_KAFKA_ADMIN_OP_DELETERECORDS, .make = deleted_records, .dispose = deleted_records_dispose,
    .changes = true, .submit = delete_records_submit, .read = delete_records_read,
};

static VALUE client_delete_records(VALUE self, VALUE places, VALUE options)
{
    return penstock_admin_ask(self, &delete_records, rb_ary_new_from_args(1, rb_ary_new_from_args(1, places)), options);
}

/* ---- elect leaders: one row, [kind, places or nil for all partitions] ---- */

#ifdef HAVE_RD_KAFKA_ELECTLEADERS
static void *election(VALUE row, char *errstr, size_t size)
{
    rd_kafka_ElectionType_t kind = (rd_kafka_ElectionType_t)NUM2INT(rb_ary_entry(row, 0));
    VALUE places = rb_ary_entry(row, 1);
    rd_kafka_topic_partition_list_t *list = NIL_P(places) ? NULL : penstock_list_from(places);
    rd_kafka_ElectLeaders_t *item = rd_kafka_ElectLeaders_new(kind, list);
    if (list) rd_kafka_topic_partition_list_destroy(list);
    return item;
}

static void election_dispose(void *item)
{
    rd_kafka_ElectLeaders_destroy(item);
}

static void elect_leaders_submit(rd_kafka_t *rk, void **items, size_t count, const rd_kafka_AdminOptions_t *options,
                                 rd_kafka_queue_t *queue)
{
    rd_kafka_ElectLeaders(rk, items[0], options, queue);
}

static VALUE elect_leaders_read(const struct ps_admin *admin, rd_kafka_event_t *event)
{
    size_t count;
    const rd_kafka_topic_partition_result_t **results =
        rd_kafka_ElectLeaders_result_partitions(rd_kafka_event_ElectLeaders_result(event), &count);
    VALUE rows = rb_ary_new_capa((long)count);
    for (size_t i = 0; i < count; i++) {
        const rd_kafka_error_t *error = rd_kafka_topic_partition_result_error(results[i]);
        rb_ary_push(rows, place_to_ruby(admin, rd_kafka_topic_partition_result_partition(results[i]),
                                        error && rd_kafka_error_code(error) ? rd_kafka_error_string(error) : NULL, Qnil));
        if (i % 256 == 255) rb_thread_check_ints(); /* lets other threads run, if there are many partitions */
    }
    return rows;
}

static const struct penstock_admin_request elect_leaders = {
    .op = RD_KAFKA_ADMIN_OP_ELECTLEADERS, .make = election, .dispose = election_dispose,
    .changes = true, .submit = elect_leaders_submit, .read = elect_leaders_read,
};

static VALUE client_elect_leaders(VALUE self, VALUE rows, VALUE options)
{
    return penstock_admin_ask(self, &elect_leaders, rows, options);
}
#endif

void penstock_admin_offsets_init(VALUE client_class)
{
    rb_define_method(client_class, "offsets_for_times", client_offsets_for_times, 2);
#ifdef HAVE_RD_KAFKA_LISTOFFSETS
    rb_define_method(client_class, "list_offsets", client_list_offsets, 2);
#endif
    rb_define_method(client_class, "delete_records", client_delete_records, 2);
#ifdef HAVE_RD_KAFKA_ELECTLEADERS
    rb_define_method(client_class, "elect_leaders", client_elect_leaders, 2);
#endif
}
