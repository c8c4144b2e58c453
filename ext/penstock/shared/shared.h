/*
 * What both extensions include, penstock/penstock and penstock/message_pack: helpers for methods in C that know nothing of Kafka.
 * All of it is inline, so that neither extension needs the other one.
 */
#ifndef PENSTOCK_SHARED_H
#define PENSTOCK_SHARED_H

#include <ruby.h>

NORETURN(static inline void penstock_raise_uninitialized(VALUE object));
static inline void penstock_raise_uninitialized(VALUE object)
{
    rb_raise(rb_eTypeError, "uninitialized %" PRIsVALUE, rb_obj_class(object));
}

/*
 * Returns an object's struct. Raises TypeError for an object of another type, and for an object that has no struct yet: a thread
 * that searches the heap (ObjectSpace.each_object) finds objects that another thread is still building.
 */
static inline void *penstock_data(VALUE object, const rb_data_type_t *type)
{
    void *data = rb_check_typeddata(object, type);
    if (!data) penstock_raise_uninitialized(object); /* M:data_checked */
    return data;
}

/* Ruby keeps an error's backtrace in an object that is not shareable between Ractors. This replaces it by Strings, which are. */
static inline VALUE penstock_error_freeze(VALUE self)
{
    VALUE lines = OBJ_FROZEN(self) ? Qnil : rb_funcall(self, rb_intern("backtrace"), 0);
    if (!NIL_P(lines)) {
        rb_funcall(self, rb_intern("set_backtrace"), 1, lines);
        /* M:frozen_error_backtrace */
        rb_ivar_set(self, rb_intern("bt_locations"), Qnil); /* Ruby's hidden variable, which Ruby code cannot set */
    }
    return rb_call_super(0, NULL);
}

/* Defines Penstock::Error#freeze, unless the other extension has done it already. */
static inline void penstock_error_freeze_init(VALUE penstock)
{
    VALUE error = rb_const_get(penstock, rb_intern("Error"));
    VALUE defined = rb_funcall(error, rb_intern("method_defined?"), 2, ID2SYM(rb_intern("freeze")), Qfalse);
    if (!RTEST(defined)) rb_define_method(error, "freeze", penstock_error_freeze, 0);
}

#endif
