/*
 * Penstock::Native::WeakList: objects of a Ractor, until they are garbage-collected.
 *
 * ObjectSpace::WeakMap of Ruby 3.1 also returns objects that are dead, while their finalizers wait and all else in their page of the heap is
 * free (gc.c: wmap_live_p). When the finalizers have run, such an object is no object any more, and a call of it ends the process.
 *
 * An object that is listed has a mark in a hidden variable, which no other object refers to, and the mark refers to the object. So both
 * die at the same time, and when the mark is swept, which needs no finalizer, the object leaves the list. In between the object is
 * garbage: both methods end the sweep first, as rb_gc_disable does.
 */
#include "ruby/penstock.h"

struct mark {
    struct mark *previous, *next; /* in the list; NULL: none */
    struct mark **first;          /* of the list; NULL: it is gone */
    VALUE object, older;          /* older: the object's mark of another list, or nil */
};

static ID id_mark; /* no method sees a variable with such a name */

/* ---- marks ---- */

static void mark_mark(void *data)
{
    const struct mark *mark = data;
    rb_gc_mark(mark->object);
    rb_gc_mark(mark->older);
}

static void mark_free(void *data)
{
    struct mark *mark = data;
    if (mark->next) mark->next->previous = mark->previous;
    if (mark->previous) mark->previous->next = mark->next;
    else if (mark->first) *mark->first = mark->next;
    xfree(mark);
}

static const rb_data_type_t mark_type = {
    .wrap_struct_name = "Penstock::Mark",
    .function = { .dmark = mark_mark, .dfree = mark_free },
    .flags = RUBY_TYPED_FREE_IMMEDIATELY,
};

/* ---- the list ---- */

static void list_free(void *data)
{
    struct mark **first = data;
    for (struct mark *mark = *first, *next; mark; mark = next) {
        next = mark->next;
        mark->first = NULL;
        mark->previous = mark->next = NULL;
    }
    xfree(first);
}

static const rb_data_type_t list_type = {
    .wrap_struct_name = "Penstock::WeakList",
    .function = { .dfree = list_free },
    .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

static VALUE list_allocate(VALUE class)
{
    struct mark **first;
    return TypedData_Make_Struct(class, struct mark *, &list_type, first);
}

static VALUE list_add(VALUE self, VALUE object)
{
    struct mark **first = penstock_data(self, &list_type), *mark;
    VALUE made = TypedData_Make_Struct(0, struct mark, &mark_type, mark);
    mark->object = object;
    mark->older = rb_attr_get(object, id_mark);
    rb_ivar_set(object, id_mark, made);
    mark->first = first;
    mark->next = *first;
    if (mark->next) mark->next->previous = mark;
    *first = mark;
    return self;
}

static VALUE list_to_a(VALUE self)
{
    struct mark **first = penstock_data(self, &list_type);
    long count = 0;
    for (const struct mark *mark = *first; mark; mark = mark->next) count++;
    VALUE objects = rb_ary_new_capa(count);
    VALUE disabled = rb_gc_disable();
    for (const struct mark *mark = *first; mark; mark = mark->next) rb_ary_push(objects, mark->object);
    if (!RTEST(disabled)) rb_gc_enable();
    return objects;
}

/* Without a reference on the stack, where the garbage collector would find it. */
static VALUE list_empty_p(VALUE self)
{
    struct mark **first = penstock_data(self, &list_type);
    if (!RTEST(rb_gc_disable())) rb_gc_enable();
    return *first ? Qfalse : Qtrue;
}

void penstock_weak_list_init(void)
{
    id_mark = rb_intern("penstock_mark");
    VALUE list_class = rb_define_class_under(penstock_native, "WeakList", rb_cObject);
    rb_define_alloc_func(list_class, list_allocate);
    rb_define_method(list_class, "add", list_add, 1);
    rb_define_method(list_class, "to_a", list_to_a, 0);
    rb_define_method(list_class, "empty?", list_empty_p, 0);
}
