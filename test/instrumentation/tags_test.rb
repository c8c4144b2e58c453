# frozen_string_literal: true

require_relative "../test_helper"

class TagsTest < PenstockTest
  def setup
    super
    @tags = Penstock::Tags.new
  end

  def test_symbols_and_strings_mean_the_same
    @tags.add(:critical).add("critical").add("slow")
    assert_equal %w[critical slow], @tags.to_a
    assert_equal [true, true, false], [@tags.include?("slow"), @tags.include?(:critical), @tags.include?(:other)]
    assert_equal %w[slow], @tags.delete("critical").to_a
  end

  def test_a_tag_replaces_the_one_with_the_same_name
    @tags.add(:kind, "payments").add(:kind, :mail).add(:other, "mail")
    assert_equal %w[mail], @tags.to_a
    assert_equal %w[mail], @tags.delete(:kind).to_a
    assert_empty @tags.delete(:other).to_a
  end

  def test_deleting_a_missing_tag_is_no_error
    assert_empty @tags.delete(:missing).to_a
  end

  def test_clear_removes_all_tags
    assert_empty @tags.add(:a).add(:b).clear.to_a
  end

  def test_tags_are_copied_on_input_and_output
    name = +"a"
    @tags.add(name)
    name << "b"
    @tags.to_a << "c"
    assert_equal %w[a], @tags.to_a
    assert_includes @tags.inspect, "a"
  end

  def test_a_tag_is_a_string_or_symbol
    [-> { @tags.add(nil) }, -> { @tags.add(:a, 5) }, -> { @tags.delete(5) }].each { |call| assert_raises(ArgumentError, &call) }
    assert_empty @tags.to_a
  end

  def test_threads_that_add_tags_lose_none
    Array.new(4) { |i| Thread.new { 100.times { |j| @tags.add("#{i}-#{j}") } } }.each(&:join)
    assert_equal 400, @tags.to_a.size
  end
end
