/*
 * Arguments of methods in C: keywords, and times in seconds. A call without keywords costs nothing. A call with keywords costs
 * the Hash that Ruby makes of them. Any Ractor.
 */
#include "ruby/penstock.h"

static VALUE keywords_module, seconds_module;

/* Raises: the arguments do not fit `form`. */
static void reject(const char *form, VALUE known, VALUE more, VALUE given)
{
    VALUE wrong = NIL_P(given) ? rb_hash_new() : rb_hash_dup(given);
    for (long i = 0; i < RARRAY_LEN(known); i++) rb_hash_delete(wrong, RARRAY_AREF(known, i));
    rb_funcall(keywords_module, rb_intern("check"), 4, penstock_text(form), known, more, wrong);
}

void penstock_keywords(int argc, const VALUE *argv, int positional, const char *form, int count, const VALUE *names,
                       VALUE *values)
{
    VALUE given = rb_keyword_given_p() ? argv[--argc] : Qnil;
    size_t found = 0;
    for (int i = 0; !NIL_P(given) && i < count; i++) {
        VALUE value = rb_hash_lookup2(given, names[i], Qundef);
        if (value == Qundef) continue;
        values[i] = value;
        found++;
    }
    int more = argc > positional ? argc - positional : 0;
    if (more > 0 || (!NIL_P(given) && found < RHASH_SIZE(given)))
        reject(form, rb_ary_new_from_values(count, names), rb_ary_new_from_values(more, argv + positional), given);
    rb_check_arity(argc, positional, positional);
}

VALUE penstock_given(VALUE settings, const char *name)
{
    return rb_hash_fetch(settings, ID2SYM(rb_intern(name)));
}

enum { LONGEST = 3600 }; /* Seconds::LONGEST; longer times raise */

int64_t penstock_seconds(VALUE seconds)
{
    if (NIL_P(seconds)) return -1;
    bool plain = FIXNUM_P(seconds) ? FIX2LONG(seconds) >= 0 && FIX2LONG(seconds) <= LONGEST
                                   : RB_FLOAT_TYPE_P(seconds) && RFLOAT_VALUE(seconds) >= 0;
    if (!plain) seconds = rb_funcall(seconds_module, rb_intern("of"), 1, seconds); /* checks the value, and may raise */
    double value = NUM2DBL(seconds) * 1000;
    return value > 1e15 ? -1 : (int64_t)(value + 0.999);
}

void penstock_keywords_init(void)
{
    keywords_module = rb_const_get(penstock_module, rb_intern("Keywords"));
    seconds_module = rb_const_get(penstock_module, rb_intern("Seconds"));
    rb_gc_register_mark_object(keywords_module);
    rb_gc_register_mark_object(seconds_module);
}
