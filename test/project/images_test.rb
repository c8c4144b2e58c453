# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/limited"
require "rexml/document"
require "tmpdir"

# The pictures of the README and the documents, in their light and their dark form.
class ImagesTest < PenstockTest
  ROOT = File.expand_path("../..", __dir__)
  IMAGES = Dir[File.join(ROOT, "docs/images/*.svg")].to_h { |file| [File.basename(file), File.read(file)] }

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
end
