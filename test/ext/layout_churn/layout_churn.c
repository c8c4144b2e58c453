/*
 * A struct layout that holds its fields in a Hash, as in ffi, stored with and without a write barrier.
 *
 * WB_PROTECTED promises that the collector learns of every object that is stored in a layout. The collector relies on this in two
 * cases: for a layout that it has already marked during incremental marking, and for an old layout during a minor collection. It
 * does not see a Hash that a plain assignment stores in such a layout. It frees the Hash, and another object takes its place.
 */
#include <ruby.h>

struct layout {
    VALUE field_map; /* name => offset */
};

static void layout_mark(void *data)
{
    rb_gc_mark(((struct layout *)data)->field_map);
}

static const rb_data_type_t layout_type = {
    .wrap_struct_name = "LayoutChurn::Layout",
    .function = { .dmark = layout_mark, .dfree = RUBY_DEFAULT_FREE },
    .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

static VALUE layout_allocate(VALUE class)
{
    struct layout *layout;
    VALUE self = TypedData_Make_Struct(class, struct layout, &layout_type, layout);
    layout->field_map = Qnil;
    return self;
}

static struct layout *layout_get(VALUE self)
{
    return rb_check_typeddata(self, &layout_type);
}

/* layout.define(names, barrier): the Hash is stored while it is young and empty, and filled afterwards. */
static VALUE layout_define(VALUE self, VALUE names, VALUE barrier)
{
    struct layout *layout = layout_get(self);
    Check_Type(names, T_ARRAY);
    VALUE field_map = rb_hash_new();
    if (RTEST(barrier)) RB_OBJ_WRITE(self, &layout->field_map, field_map); /* M:ffi_layout_barrier */
    else layout->field_map = field_map; /* the defect */
    for (long i = 0; i < RARRAY_LEN(names); i++) rb_hash_aset(layout->field_map, RARRAY_AREF(names, i), LONG2NUM(i * 8));
    return self;
}

/* The kind of object at the address of the Hash: :hash, :freed (not yet replaced), or :other. */
static VALUE layout_state(VALUE self)
{
    switch (rb_type(layout_get(self)->field_map)) {
    case T_HASH: return ID2SYM(rb_intern("hash"));
    case T_NONE: case T_ZOMBIE: case T_MOVED: return ID2SYM(rb_intern("freed"));
    default: return ID2SYM(rb_intern("other"));
    }
}

/* Uses the object at the address of the Hash as a Hash, as ffi does. */
static VALUE layout_aref(VALUE self, VALUE name)
{
    return rb_hash_aref(layout_get(self)->field_map, name);
}

RUBY_FUNC_EXPORTED void Init_layout_churn(void)
{
    VALUE layout_class = rb_define_class_under(rb_define_module("LayoutChurn"), "Layout", rb_cObject);
    rb_define_alloc_func(layout_class, layout_allocate);
    rb_define_method(layout_class, "define", layout_define, 2);
    rb_define_method(layout_class, "[]", layout_aref, 1);
    rb_define_method(layout_class, "state", layout_state, 0);
}
