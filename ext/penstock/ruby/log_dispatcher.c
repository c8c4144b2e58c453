/* The native part of Penstock::LogDispatcher, whose thread takes the mailbox's log lines. */
#include "ruby/penstock.h"

static void *wait_for_mail_nogvl(void *unused)
{
    (void)unused;
    ps_mailbox_wait();
    return NULL;
}

/* Waits without the GVL for the next mail, and returns [address, level, text]. Level nil: no more mail from this address. */
static VALUE s_next_mail(VALUE self)
{
    struct ps_mail *mail;
    while (!(mail = ps_mailbox_take())) penstock_sleep(wait_for_mail_nogvl, NULL, ps_mailbox_interrupt, NULL);

    VALUE address = ULL2NUM(mail->address), level = mail->level == PS_MAIL_LAST ? Qnil : INT2FIX(mail->level);
    VALUE text = penstock_text_sized(mail->text, mail->size);
    free(mail);
    return rb_ary_new_from_args(3, address, level, text);
}

static VALUE s_dropped_mail(VALUE self)
{
    return ULL2NUM(ps_mailbox_dropped());
}

void penstock_log_dispatcher_init(void)
{
    VALUE dispatcher = rb_const_get(penstock_module, rb_intern("LogDispatcher"));
    rb_define_singleton_method(dispatcher, "next_mail", s_next_mail, 0);
    rb_define_singleton_method(dispatcher, "dropped_mail", s_dropped_mail, 0);
}
