# frozen_string_literal: true

require_relative "../test_helper"

# The thread of many clients' tasks, without clients. tokens_test.rb and stuck_partition_test.rb have the clients.
class SharedThreadTest < PenstockTest
  NAME = "shared.test"
  private_constant :NAME

  # Is due once, and again after each `due!`, until `over!`.
  class Task
    attr_reader :due_at, :threads, :running

    def initialize(&work)
      @work = work
      @due_at = 0.0
      @threads = Queue.new
      @running = []
    end

    def call
      @threads << Thread.current
      @running << @threads.size
      @due_at = Internal::SharedThread::FOREVER
      @work&.call
    ensure
      @running.pop
    end

    def due!(time = 0.0)
      @due_at = time
      Internal::SharedThread.changed
    end

    def over! = due!(nil)
  end

  def setup
    super
    @shared = Internal::SharedThread.new(NAME, 0.05)
    @tasks = []
    @stop = Queue.new
  end

  def teardown
    @stop.close
    @tasks.each(&:over!)
    eventually { threads.empty? }
    super
  end

  def threads = Thread.list.select { |thread| thread.name == NAME }

  def task(&work)
    Task.new(&work).tap do |made|
      @tasks << made
      @shared.add(made, made)
    end
  end

  def hanging = task { @stop.pop }

  def seconds
    before = now
    yield
    now - before
  end

  def test_quick_tasks_leave_one_thread
    100.times { task }
    eventually { @tasks.all? { |task| task.threads.size == 1 } }
    eventually { threads.size == 1 }
    @tasks.each(&:due!)
    eventually { @tasks.all? { |task| task.threads.size == 2 } && threads.size == 1 }
  end

  def test_one_task_needs_one_thread
    single = task
    20.times do |i|
      single.due!
      eventually { single.threads.size > i }
    end
    assert_equal 1, single.threads.size.times.map { single.threads.pop }.uniq.size
  end

  # The last one would come after 20 s, if each one waited for those before it.
  def test_the_patience_delays_a_task_once
    @shared = Internal::SharedThread.new(NAME, 1)
    assert_took(10, seconds do
      now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      20.times { hanging.due!(now) }
      eventually(60) { @tasks.none? { |task| task.threads.empty? } }
    end)
  end

  def test_no_more_tasks_run_at_once_than_permitted_and_all_run
    @shared = Internal::SharedThread.new(NAME, 0.01, most: 3)
    waiting = Array.new(10) { hanging }
    eventually { waiting.count { |task| task.threads.size == 1 } == 3 }
    sleep 0.2
    assert_equal [3, 3], [waiting.sum { |task| task.threads.size }, threads.size]
    10.times { @stop << true }
    eventually { waiting.all? { |task| task.threads.size == 1 } }
    eventually { threads.size == 1 }
  end

  def test_tasks_that_hang_delay_no_other
    5.times { hanging }
    other = task
    eventually { other.threads.size == 1 }
    other.due!
    eventually { other.threads.size == 2 }
    assert_operator threads.size, :<=, 6
    @stop.close
    eventually { threads.size == 1 }
  end

  def test_a_task_runs_on_one_thread_at_a_time
    most = 0
    one = nil
    one = task { most = [most, one.running.size, sleep(0.1) && one.running.size].max }
    task
    10.times do
      one.due!
      sleep 0.02
    end
    eventually { one.threads.size > 1 }
    assert_equal 1, most
  end

  def test_a_task_that_became_due_while_it_ran_runs_again
    one = hanging
    eventually { one.threads.size == 1 }
    other = task
    eventually { other.threads.size == 1 }
    one.due!
    @stop << true
    eventually { one.threads.size == 2 }
  end

  def test_a_task_runs_when_its_time_has_come
    one = task
    eventually { one.threads.size == 1 }
    start = now
    one.due!(start + 0.2)
    eventually { one.threads.size == 2 }
    assert_operator now - start, :>=, 0.2
  end

  def test_a_killed_thread_is_replaced
    one = task
    eventually { one.threads.size == 1 && threads.size == 1 }
    killed = threads.first.tap(&:kill)
    Slowness.join(killed, 5)
    one.due!
    eventually { one.threads.size == 2 }
  end

  def test_a_task_that_ends_its_thread_runs_again
    one = task { Thread.exit }
    task
    3.times do |i|
      eventually { one.threads.size == i + 1 }
      one.due!
    end
    eventually { one.threads.size == 4 && threads.size == 1 }
  end

  def test_the_thread_ends_with_the_last_task_and_starts_with_the_next
    2.times do
      one = task
      other = task
      one.over!
      eventually { other.threads.size == 1 && threads.size == 1 }
      other.over!
      eventually { threads.empty? }
    end
  end

  def test_a_signal_trap_can_end_a_task
    one = task
    eventually { one.threads.size == 1 }
    in_trap { one.over! }
    eventually { threads.empty? }
  end

  def test_a_fork_child_has_a_thread_for_its_own_tasks_only
    inherited = task
    hanging
    eventually { inherited.threads.size == 1 }
    own = in_child do
      one = Task.new
      @shared.add(one, one)
      inherited.due!
      eventually { one.threads.size == 1 && threads.size == 1 }
      one.over!
      eventually { threads.empty? }
      inherited.threads.size
    end
    assert_equal 1, own
  end
end
