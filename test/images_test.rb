# frozen_string_literal: true

require_relative "test_helper"
require_relative "support/limited"
require "rexml/document"
require "tmpdir"

# The pictures of the README and the documents, in their light and their dark form.
class ImagesTest < PenstockTest
  ROOT = File.expand_path("..", __dir__)
  IMAGES = Dir[File.join(ROOT, "docs/images/*.svg")].to_h { |file| [File.basename(file), File.read(file)] }
  # Which classes of text stand on which classes of shapes.
  TEXT = { "text" => %w[.page .panel .box .record .result], ".layer" => %w[.panel], ".down" => %w[.page], ".up" => %w[.page],
           ".on-poller" => %w[.poller] }.freeze

  def test_the_dark_pictures_are_made_of_the_light_ones
    Dir.mktmpdir do |directory|
      output, status = Limited.capture2e(RbConfig.ruby, "-S", "rake", "images[#{directory}]", chdir: ROOT)
      assert_predicate status, :success?, output
      made = Dir[File.join(directory, "*")].to_h { |file| [File.basename(file), File.read(file)] }
      assert_equal IMAGES.select { |name, _| name.end_with?("-dark.svg") }, made, "run rake images"
      assert_equal IMAGES.size, 2 * made.size
    end
  end

  def test_the_pictures_are_well_formed_and_have_a_title_and_a_description_for_screen_readers
    IMAGES.each_value do |text|
      root = REXML::Document.new(text).root
      assert_equal "img", root.attributes["role"]
      root.attributes["aria-labelledby"].split.zip(%w[title desc]) do |id, element|
        refute_empty root.elements["#{element}[@id='#{id}']"].text
      end
    end
  end

  # A page shows an image without scripts, and loads nothing that it refers to.
  def test_the_pictures_need_nothing_from_elsewhere
    IMAGES.each_value { |text| refute_match(/<(?:script|image|foreignObject|use)\b|@import|url\((?!#)|href/, text) }
  end

  LEAST_CONTRAST = 4.5 # WCAG 2, level AA

  def test_every_text_can_be_read_on_its_ground
    IMAGES.each do |name, text|
      fill = text.scan(/^ +(\.?[\w-]+) \{[^}]*fill: (#\h{6})/).to_h
      pairs = TEXT.flat_map { |writing, grounds| grounds.map { |ground| [writing, ground] } }
      pairs.each { |pair| assert_operator contrast(*fill.fetch_values(*pair)), :>=, LEAST_CONTRAST, [name, *pair].inspect }
    end
  end

  # @return [Float] as WCAG 2 defines it
  def contrast(*colours)
    dark, light = colours.map { |colour| luminance(colour) }.sort
    (light + 0.05) / (dark + 0.05)
  end

  def luminance(colour)
    shares = colour.scan(/\h\h/).map { |part| part.hex / 255.0 }
    linear = shares.map { |share| share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055)**2.4 }
    linear.zip([0.2126, 0.7152, 0.0722]).sum { |share, weight| share * weight }
  end
end
