/*
 * Penstock::MessagePack::Registry: maps classes to ext types, and ext types to classes. It never changes. So it is shareable if
 * its contents are, and Packers and Unpackers of any Ractor use it without a lock. Factory makes a new one for each registration.
 */
#include "message_pack/message_pack.h"

static VALUE registry_class;
VALUE penstock_empty_registry;

static void registry_mark(void *data)
{
    struct penstock_registry *registry = data;
    rb_gc_mark_movable(registry->packers);
    rb_gc_mark_movable(registry->unpackers);
    for (size_t i = 0; i < registry->packer_count; i++) {
        rb_gc_mark_movable(registry->by_class[i].klass);
        rb_gc_mark_movable(registry->by_class[i].callable);
    }
    for (size_t i = 0; i < registry->unpacker_count; i++) {
        rb_gc_mark_movable(registry->by_place[i].klass);
        rb_gc_mark_movable(registry->by_place[i].callable);
    }
}

static void registry_compact(void *data)
{
    struct penstock_registry *registry = data;
    registry->packers = rb_gc_location(registry->packers);
    registry->unpackers = rb_gc_location(registry->unpackers);
    for (size_t i = 0; i < registry->packer_count; i++) {
        registry->by_class[i].klass = rb_gc_location(registry->by_class[i].klass);
        registry->by_class[i].callable = rb_gc_location(registry->by_class[i].callable);
    }
    for (size_t i = 0; i < registry->unpacker_count; i++) {
        registry->by_place[i].klass = rb_gc_location(registry->by_place[i].klass); /* M:pack_class_relocation */
        registry->by_place[i].callable = rb_gc_location(registry->by_place[i].callable);
    }
}

static void registry_free(void *data)
{
    struct penstock_registry *registry = data;
    xfree(registry->by_class);
    xfree(registry->by_place);
    xfree(registry);
}

static size_t registry_size(const void *data)
{
    const struct penstock_registry *registry = data;
    return sizeof(*registry) + registry->packer_count * sizeof(*registry->by_class) +
           registry->unpacker_count * sizeof(*registry->by_place);
}

static const rb_data_type_t registry_type = {
    .wrap_struct_name = "Penstock::MessagePack::Registry",
    .function = {
        .dmark = registry_mark,
        .dfree = registry_free,
        .dsize = registry_size,
        .dcompact = registry_compact,
    },
    .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED | RUBY_TYPED_FROZEN_SHAREABLE,
};

const struct penstock_registry *penstock_registry_get(VALUE registry)
{
    return penstock_data(registry, &registry_type);
}

/* ---- making a Registry: Ruby has checked the arguments ---- */

struct adding {
    VALUE self;
    struct penstock_registry *registry;
};

static VALUE part(VALUE values, long place)
{
    return RARRAY_AREF(values, place);
}

/* class => [type, callable, recursive, oversized] */
static int add_packer(VALUE klass, VALUE values, VALUE arg)
{
    struct adding *adding = (struct adding *)arg;
    struct penstock_registry *registry = adding->registry;
    struct penstock_ext_packer *packer = &registry->by_class[registry->packer_count];
    Check_Type(part(values, 0), T_FIXNUM); /* is_a? may be wrong */
    packer->klass = packer->callable = Qnil;
    packer->type = (int8_t)FIX2INT(part(values, 0));
    packer->recursive = RTEST(part(values, 2));
    registry->packer_count++;
    RB_OBJ_WRITE(adding->self, &packer->klass, klass);
    RB_OBJ_WRITE(adding->self, &packer->callable, part(values, 1));
    if (RB_TYPE_P(klass, T_MODULE)) registry->modules = true;
    if (klass == rb_cSymbol) registry->symbols = packer;
    if (RTEST(part(values, 3))) registry->oversized = packer;
    return ST_CONTINUE;
}

/* type => [class, callable, recursive, symbols] */
static int add_unpacker(VALUE type, VALUE values, VALUE arg)
{
    struct adding *adding = (struct adding *)arg;
    struct penstock_registry *registry = adding->registry;
    struct penstock_ext_unpacker *unpacker = &registry->by_place[registry->unpacker_count];
    Check_Type(type, T_FIXNUM);
    unpacker->klass = unpacker->callable = Qnil;
    unpacker->recursive = RTEST(part(values, 2));
    unpacker->symbols = RTEST(part(values, 3));
    registry->unpacker_count++;
    RB_OBJ_WRITE(adding->self, &unpacker->klass, part(values, 0));
    RB_OBJ_WRITE(adding->self, &unpacker->callable, part(values, 1));
    registry->places[FIX2INT(type) + 128] = (uint8_t)registry->unpacker_count;
    return ST_CONTINUE;
}

static VALUE registry_s_new(VALUE klass, VALUE packers, VALUE unpackers)
{
    struct penstock_registry *registry;
    VALUE self = TypedData_Make_Struct(klass, struct penstock_registry, &registry_type, registry);
    struct adding adding = { .self = self, .registry = registry };
    registry->packers = registry->unpackers = Qnil;
    Check_Type(packers, T_HASH);
    Check_Type(unpackers, T_HASH);
    if (RHASH_SIZE(unpackers) > 255) rb_raise(rb_eArgError, "at most 255 types can be registered");
    RB_OBJ_WRITE(self, &registry->packers, packers);
    RB_OBJ_WRITE(self, &registry->unpackers, unpackers);
    registry->by_class = ZALLOC_N(struct penstock_ext_packer, RHASH_SIZE(packers) + 1);
    registry->by_place = ZALLOC_N(struct penstock_ext_unpacker, RHASH_SIZE(unpackers) + 1);
    rb_hash_foreach(packers, add_packer, (VALUE)&adding);
    rb_hash_foreach(unpackers, add_unpacker, (VALUE)&adding);
    return rb_obj_freeze(self);
}

/* ---- lookup ---- */

static const struct penstock_ext_packer *find_exactly(const struct penstock_registry *registry, VALUE klass)
{
    for (size_t i = 0; i < registry->packer_count; i++)
        if (registry->by_class[i].klass == klass) return &registry->by_class[i];
    return NULL;
}

/* Finds the class's nearest registered ancestor. The class may be a singleton class. */
const struct penstock_ext_packer *penstock_registry_find(const struct penstock_registry *registry, VALUE klass)
{
    if (registry->packer_count == 0) return NULL;
    const struct penstock_ext_packer *packer = find_exactly(registry, klass);
    if (packer) return packer;
    if (!registry->modules) { /* no registered module, so classes suffice */
        for (VALUE above = RCLASS_SUPER(klass); above && !packer; above = RCLASS_SUPER(above))
            packer = find_exactly(registry, above);
        return packer;
    }
    VALUE ancestors = rb_mod_ancestors(klass);
    for (long i = 0; i < RARRAY_LEN(ancestors) && !packer; i++) packer = find_exactly(registry, RARRAY_AREF(ancestors, i));
    return packer;
}

static VALUE registry_packers(VALUE self)
{
    return penstock_registry_get(self)->packers;
}

static VALUE registry_unpackers(VALUE self)
{
    return penstock_registry_get(self)->unpackers;
}

void penstock_registry_init(void)
{
    registry_class = rb_define_class_under(penstock_message_pack, "Registry", rb_cObject);
    rb_gc_register_mark_object(registry_class);
    rb_undef_alloc_func(registry_class);
    rb_define_singleton_method(registry_class, "new", registry_s_new, 2);
    rb_define_method(registry_class, "packers", registry_packers, 0);
    rb_define_method(registry_class, "unpackers", registry_unpackers, 0);

    VALUE none = rb_obj_freeze(rb_hash_new());
    penstock_empty_registry = registry_s_new(registry_class, none, none);
    rb_gc_register_mark_object(penstock_empty_registry);
    rb_define_const(registry_class, "EMPTY", penstock_empty_registry);
}
