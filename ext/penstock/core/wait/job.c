/*
 * A blocking librdkafka call (flush, close, metadata) on a short-lived native thread, so that the calling Ruby thread can be
 * interrupted while it waits. The native thread and each caller own a reference; the last one frees the job.
 */
#include "wait/wait.h"

void ps_job_init(struct ps_job *job, void (*run)(struct ps_job *), void (*release)(struct ps_job *))
{
    pthread_mutex_init(&job->lock, NULL);
    ps_completion_init(&job->completion, &job->lock, 1);
    atomic_init(&job->refs, 1);
    atomic_init(&job->abandoned, false);
    job->run = run;
    job->release = release;
}

void ps_job_retain(struct ps_job *job)
{
    atomic_fetch_add(&job->refs, 1);
}

void ps_job_unref(struct ps_job *job)
{
    if (atomic_fetch_sub(&job->refs, 1) != 1) return;
    pthread_mutex_destroy(&job->lock);
    job->release(job);
}

void ps_job_abandon(struct ps_job *job)
{
    atomic_store(&job->abandoned, true);
    ps_job_unref(job);
}

static void *job_main(void *arg)
{
    struct ps_job *job = arg;
    job->run(job);
    ps_completion_settle(&job->completion, 1);
    ps_job_unref(job);
    return NULL;
}

int ps_job_start(struct ps_job *job, const char *thread_name)
{
    ps_job_retain(job);
    int failed = ps_thread_start(thread_name, job_main, job);
    if (failed) ps_job_unref(job);
    return failed;
}
